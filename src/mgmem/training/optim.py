"""Optimisers: AdamW from PyTorch, the RMSProp of the reference, and Muon for gates and kernels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.training.recipe import Recipe

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
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
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


class Muon(torch.optim.Optimizer):
    """Momentum whose every step is made orthogonal, matrix by matrix (Jordan et al. 2024).

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
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
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
        grads: list[Tensor] = [p.grad for p in params]  # type: ignore[misc]
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


def _muon(model: nn.Module, recipe: Recipe) -> Muon:
    """Muon over all parameters of ``model``, the gates of its LSTMs apart.

    Between ReLUs only the ratios of weights count, so that decay takes nothing away; gates have
    to be sharp, and do not decay.
    """
    stacked: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, nn.LSTM | nn.LSTMCell):
            stacked += [p for p in module.parameters() if p.dim() == 2]
        else:
            stacked += getattr(module, "gate_weights", [])
    known = {id(p) for p in stacked}
    single = [p for p in model.parameters() if id(p) not in known]
    groups = [
        {"params": single, "matrices": 1, "weight_decay": recipe.weight_decay},
        {"params": stacked, "matrices": _GATES, "rate": recipe.gate_rate},
    ]
    return Muon([group for group in groups if group["params"]], recipe.lr, beta2=recipe.beta2)


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser over all parameters of ``model``."""
    if recipe.optimizer == "rmsprop":
        return ReferenceRMSprop(model.parameters(), lr=recipe.lr)
    if recipe.optimizer == "muon":
        return _muon(model, recipe)
    return torch.optim.AdamW(
        model.parameters(),
        lr=recipe.lr,
        betas=(0.9, recipe.beta2),
        weight_decay=recipe.weight_decay,
        foreach=True,
    )


class WeightAverage:
    """Exponential moving average of a model's floating point weights and buffers."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {
            name: tensor.detach().clone() for name, tensor in model.state_dict().items()
        }

    @torch.no_grad()
    def update(self, model: nn.Module, update: int) -> None:
        """Move towards the model; early on faster, so that the start is soon forgotten."""
        decay = min(self.decay, (1 + update) / (10 + update))
        current: dict[str, Any] = model.state_dict()
        floating = [name for name, t in current.items() if t.is_floating_point()]
        torch._foreach_lerp_(
            [self.weights[n] for n in floating], [current[n] for n in floating], 1 - decay
        )
        for name, tensor in current.items():
            if not tensor.is_floating_point():
                self.weights[name].copy_(tensor)
