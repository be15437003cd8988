"""Optimisers: AdamW from PyTorch, the RMSProp of the reference, and Muon for gates and kernels.

A recipe chooses one by its settings (`Muon`, `AdamW`, `RMSprop`); ``build`` makes it for a model.
The learning rate is set before every step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError

_GATES = 4


class ReferenceRMSprop(torch.optim.Optimizer):
    """p -= lr · g / sqrt(m + epsilon), m = decay · m + (1 - decay) · g², m starting at 1.

    ``torch.optim.RMSprop`` adds epsilon outside the root and starts at 0, which at the reference's
    epsilon of 0.1 is a different method.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        decay: float = 0.99,
        epsilon: float = 0.1,
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure
        """Take one step with the gradients at hand."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads: list[Tensor] = [p.grad for p in params]
            for p in params:
                if "mean_square" not in self.state[p]:
                    self.state[p]["mean_square"] = torch.ones_like(p)
            squares = [self.state[p]["mean_square"] for p in params]
            torch._foreach_mul_(squares, group["decay"])
            torch._foreach_addcmul_(squares, grads, grads, 1 - group["decay"])
            roots = torch._foreach_sqrt(torch._foreach_add(squares, group["epsilon"]))
            torch._foreach_addcdiv_(params, grads, roots, -group["lr"])


class OrthogonalMomentum(torch.optim.Optimizer):
    """Muon: momentum whose every step is made orthogonal, matrix by matrix (Jordan et al. 2024).

    A kernel (out, in, *taps) is the matrix (out, in·taps); the four gates that an LSTM stacks in
    one tensor are four matrices, for they are four maps. Steps are scaled to AdamW's usual size,
    so that learning rates carry over. Vectors (biases, norms) take Adam's steps.
    ``torch.optim.Muon`` knows two-dimensional parameters only.

    Steps of one size make weights grow without end unless they decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float = 5e-3,
        momentum: float = 0.95,
        beta2: float = 0.99,
    ) -> None:
        """Each group of ``groups`` has "params", and may have "matrices" (how many each of them
        stacks), "weight_decay", and "rate", by which the learning rate of matrices is multiplied.
        """
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "beta2": beta2,
            "matrices": 1,
            "weight_decay": 0.0,
            "rate": 1.0,
        }
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure
        """Take one step with the gradients at hand."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            self._step_vectors(group, [p for p in params if p.dim() < 2])
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for p in params:
                if p.dim() >= 2:
                    alike[p.shape].append(p)
            for same in alike.values():
                self._step_matrices(group, same)

    def _step_matrices(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Parameters of one shape, all their matrices side by side."""
        for p in params:
            if "mean" not in self.state[p]:
                self.state[p]["mean"] = torch.zeros_like(p)
        means = [self.state[p]["mean"] for p in params]
        grads = [p.grad for p in params if p.grad is not None]
        torch._foreach_lerp_(means, grads, 1 - group["momentum"])
        ahead = torch.stack(torch._foreach_lerp(grads, means, group["momentum"]))
        rows = params[0].shape[0] // group["matrices"]
        steps = orthogonal(ahead.reshape(len(params) * group["matrices"], rows, -1))
        rate, size = group["lr"] * group["rate"], 0.2 * math.sqrt(max(steps.shape[-2:]))
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - rate * group["weight_decay"])
        torch._foreach_add_(params, list(steps.view_as(ahead)), alpha=-rate * size)

    def _step_vectors(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Adam."""
        for p in params:
            state, grad = self.state[p], p.grad
            assert grad is not None
            if "square" not in state:
                state.update(mean=torch.zeros_like(p), square=torch.zeros_like(p), steps=0)
            state["steps"] += 1
            state["mean"].lerp_(grad, 0.1)
            state["square"].lerp_(grad.square(), 1 - group["beta2"])
            rate = group["lr"] / (1 - 0.9 ** state["steps"])
            root = (state["square"] / (1 - group["beta2"] ** state["steps"])).sqrt_()
            p.addcdiv_(state["mean"], root.add_(1e-8), value=-rate)


def orthogonal(matrices: Tensor) -> Tensor:
    """(N, rows, columns) to about the nearest matrices with singular values of one.

    Five rounds of Muon's quintic Newton-Schulz iteration: singular values land between 0.7 and
    1.2, which is all that an optimiser needs.
    """
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    return x.mT if tall else x


def _stacked_gates(model: nn.Module) -> list[nn.Parameter]:
    """The kernels of LSTMs, each of which stacks four matrices."""
    stacked: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, nn.LSTM | nn.LSTMCell):
            stacked += [p for p in module.parameters() if p.dim() == 2]
        else:
            stacked += getattr(module, "gate_weights", [])
    return stacked


@dataclass(frozen=True)
class Muon:
    """Orthogonal steps for kernels and gates, Adam's for vectors; see `OrthogonalMomentum`."""

    gate_rate: float = 1.0
    """Learning rate of the kernels of LSTM gates, as a multiple of all others'."""
    weight_decay: float = 0.0
    """Decoupled decay of all kernels but the gates'."""
    beta2: float = 0.99
    """Decay of the squared gradients' average, for vectors."""

    def __post_init__(self) -> None:
        _check(self.weight_decay, self.beta2)
        if not 0 < self.gate_rate < math.inf:
            raise UsageError(f"gate_rate is {self.gate_rate}: give a finite factor above 0")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Over all parameters of ``model``, the gates of its LSTMs apart.

        Between ReLUs only the ratios of weights count, so that decay takes nothing away; gates
        have to be sharp, and do not decay.
        """
        stacked = _stacked_gates(model)
        known = {id(p) for p in stacked}
        single = [p for p in model.parameters() if id(p) not in known]
        groups = [
            {"params": single, "matrices": 1, "weight_decay": self.weight_decay},
            {"params": stacked, "matrices": _GATES, "rate": self.gate_rate},
        ]
        return OrthogonalMomentum([g for g in groups if g["params"]], beta2=self.beta2)


@dataclass(frozen=True)
class AdamW:
    """AdamW, as PyTorch has it."""

    weight_decay: float = 0.0
    """Decoupled decay of all weights."""
    beta2: float = 0.99
    """Decay of the squared gradients' average."""

    def __post_init__(self) -> None:
        _check(self.weight_decay, self.beta2)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Over all parameters of ``model``."""
        return torch.optim.AdamW(
            model.parameters(),
            betas=(0.9, self.beta2),
            weight_decay=self.weight_decay,
            fused=True,
        )


@dataclass(frozen=True)
class RMSprop:
    """The reference's RMSProp: epsilon inside the root, accumulator starting at 1."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Over all parameters of ``model``."""
        return ReferenceRMSprop(model.parameters())


OptimizerChoice = Muon | AdamW | RMSprop


def _check(weight_decay: float, beta2: float) -> None:
    if not 0 <= weight_decay < math.inf or not 0 <= beta2 < 1:
        raise UsageError(
            f"weight_decay {weight_decay}, beta2 {beta2}: give a finite decay of at least 0, and "
            "beta2 in [0, 1)"
        )
