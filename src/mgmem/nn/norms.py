"""Norms between the layers of a memory: over channels, positions and, or not, time.

"batch" is ``conv.PyramidNorm``. The two here keep sequences apart, so that a batch is no more than
its sequences side by side. They differ in what they look at: "sequence" takes its statistics over
the whole sequence, as the paper's question answering does, and so knows its end from the beginning;
"causal" takes those of one step, and can go on word by word.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec

Norm = Literal["none", "batch", "sequence", "causal"]

_EPSILON = 1e-5


class _OwnNorm(nn.Module):
    """A weight and a bias per channel on every level."""

    def __init__(
        self,
        layer: LayerSpec,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for _ in layer.levels:
            self.weights.append(torch.ones(layer.channels, device=device, dtype=dtype))
            self.biases.append(torch.zeros(layer.channels, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start afresh: weights at one, biases at zero."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            nn.init.ones_(weight)
            nn.init.zeros_(bias)

    def forward(self, pyramid: Pyramid, active: Tensor | None = None) -> Pyramid:
        """Grids (time, batch, channels, *space), normalised; steps that are not active are zero.

        active: (time, batch) bool or None.
        """
        parts = zip(pyramid, self.weights, self.biases, strict=True)
        grids = tuple(self._normed(grid, weight, bias, active) for grid, weight, bias in parts)
        if active is not None:
            grids = tuple(grid * shaped(active, grid) for grid in grids)
        return Pyramid(pyramid.lowest, grids)

    def _normed(self, grid: Tensor, weight: Tensor, bias: Tensor, active: Tensor | None) -> Tensor:
        raise NotImplementedError


class CausalNorm(_OwnNorm):
    """Layer norm: every step of every sequence by itself, over channels and positions."""

    def _normed(self, grid: Tensor, weight: Tensor, bias: Tensor, active: Tensor | None) -> Tensor:
        leading = grid.shape[:2]
        flat = F.group_norm(grid.flatten(0, 1), 1, weight, bias, _EPSILON)
        return flat.unflatten(0, leading)


class SequenceNorm(_OwnNorm):
    """Every channel of every sequence by itself, over time and positions."""

    def _normed(self, grid: Tensor, weight: Tensor, bias: Tensor, active: Tensor | None) -> Tensor:
        over = (0, *range(3, grid.dim()))
        counted = torch.ones_like(grid[:, :, :1]) if active is None else shaped(active, grid)
        counted = counted.expand(*grid.shape[:2], 1, *grid.shape[3:])
        total = counted.sum(over, keepdim=True).clamp(min=1)
        centred = grid - (grid * counted).sum(over, keepdim=True) / total
        variance = (centred.square() * counted).sum(over, keepdim=True) / total
        shape = (-1, *[1] * (grid.dim() - 3))
        scale = (variance + _EPSILON).rsqrt() * weight.view(shape)
        return centred * scale + bias.view(shape)


def shaped(active: Tensor, grid: Tensor) -> Tensor:
    """(time, batch) flags as numbers that broadcast over (time, batch, channels, *space)."""
    return active.to(grid.dtype).view(*active.shape, *[1] * (grid.dim() - 2))
