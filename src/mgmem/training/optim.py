"""Optimisers: AdamW from PyTorch, and the RMSProp of the reference, which PyTorch does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.training.recipe import Recipe


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


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser over all parameters of ``model``."""
    if recipe.optimizer == "rmsprop":
        return ReferenceRMSprop(model.parameters(), lr=recipe.lr)
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
