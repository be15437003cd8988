"""Weights averaged over training, which is what is evaluated and published."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


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
