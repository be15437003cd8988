"""The convolution of a level in plain PyTorch, a few samples at a time.

A layer's gathered input is three times as large as the layer below and is read once. Made as a
whole it is hundreds of MB; made a few samples at a time, forward and once more backward, it needs
little memory, again and again the same. On other devices and under autocast everything is one
piece, and PyTorch's own graph is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mgmem.ops import reference, twice
from mgmem.pyramid import Pyramid, gather, upsample

_FLOATS = 1 << 20
"""Values of a gathered input that are worked on at once."""


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv; see ``reference.conv_layer``."""
    inputs = inputs.map(channels_last)
    levels = enumerate(zip(weights, biases, strict=True), lowest)
    return Pyramid(
        lowest, tuple(convolve_level(inputs, level, w, b, relu) for level, (w, b) in levels)
    )


def convolve_level(
    inputs: Pyramid, level: int, weight: Tensor, bias: Tensor, relu: bool = False
) -> Tensor:
    """Grids (N, C, *space) to the grid (N, channels, *space) on ``level``."""
    near = [j for j in (level - 1, level, level + 1) if j in inputs.levels]
    grids = [inputs[j] for j in near]
    if grids[0].device.type != "cpu" or torch.is_autocast_enabled("cpu") or not len(grids[0]):
        y = reference.convolve(gather(inputs, level), weight, bias)
        return y.relu() if relu else y
    result: Tensor = _Pieces.apply(near[0], level, weight, bias, relu, *grids)
    return result


def channels_last(grid: Tensor) -> Tensor:
    """The grid with a pixel's channels side by side, which PyTorch convolves best."""
    return grid.contiguous(memory_format=torch.channels_last) if grid.dim() == 4 else grid


class _Pieces(torch.autograd.Function):
    """``convolve_level`` of the grids that the level reads, coarsest first."""

    @staticmethod
    def forward(
        ctx: Any, lowest: int, level: int, weight: Tensor, bias: Tensor, relu: bool, *grids: Tensor
    ) -> Tensor:
        pieces = _cut(grids, weight)
        output: Tensor | None = None
        for piece in pieces:
            x = gather(Pyramid(lowest, tuple(channels_last(grid[piece]) for grid in grids)), level)
            y = reference.convolve(x, weight, bias)
            if output is None:
                layout = torch.channels_last if y.dim() == 4 else torch.contiguous_format
                shape = (len(grids[0]), *y.shape[1:])
                whole = len(pieces) == 1
                output = y if whole else torch.empty(shape, dtype=y.dtype, memory_format=layout)
            if relu:
                torch.clamp_min(y, 0, out=output[piece])
            elif len(pieces) > 1:
                output[piece] = y
        assert output is not None
        ctx.lowest, ctx.level, ctx.relu = lowest, level, relu
        ctx.save_for_backward(weight, bias, *((output,) if relu else ()), *grids)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, bias, *grids = ctx.saved_tensors
        output = grids.pop(0) if ctx.relu else None
        wanted = ctx.needs_input_grad
        if twice.wanted_again((grad,)):
            return _differentiable_backward(ctx, grad, (weight, bias, *grids))
        results = [
            torch.empty_like(grid) if want else None
            for grid, want in zip(grids, wanted[5:], strict=True)
        ]
        d_weight, d_bias = torch.zeros_like(weight), weight.new_zeros(weight.shape[0])
        pad = [weight.shape[-1] // 2] * (weight.dim() - 2)
        for piece in _cut(grids, weight):
            g = channels_last(grad[piece])
            if output is not None:
                g = torch.ops.aten.threshold_backward(g, output[piece], 0)
            reads = [
                _Read(channels_last(grid[piece]), j - ctx.level)
                for j, grid in enumerate(grids, ctx.lowest)
            ]
            x = torch.cat([read.value for read in reads], 1)
            dx, dw, db = torch.ops.aten.convolution_backward(
                g, x, weight, [weight.shape[0]], [1] * len(pad), pad, [1] * len(pad),
                False, [0] * len(pad), 1, [any(wanted[5:]), wanted[2], wanted[3]],
            )  # fmt: skip
            if wanted[2]:
                d_weight += dw
            if wanted[3]:
                d_bias += db
            if dx is not None:
                parts = dx.split([grid.shape[1] for grid in grids], 1)
                for read, part, result in zip(reads, parts, results, strict=True):
                    if result is not None:
                        result[piece] = read.gradient(part)
        return None, None, d_weight, d_bias, None, *results


class _Read:
    """A grid as a level reads it: a neighbour's is up- or downsampled.

    ``gradient`` is what autograd makes of it, in fewer passes over memory.
    """

    def __init__(self, grid: Tensor, above: int) -> None:
        """``above``: how many levels finer than the reading level the grid is, -1, 0 or 1."""
        self.value, self._above = grid, above
        if above < 0:
            self.value = upsample(grid)
        elif above > 0:
            # A row is a plane one row high: plane and row then have one way back.
            window = [2 if grid.dim() == 4 else 1, 2]
            self._plane = grid if grid.dim() == 4 else grid.unsqueeze(2)
            pooled, picked = torch.ops.aten.max_pool2d_with_indices(self._plane, window, window)
            self._pool, self._picked = (window, window, [0, 0], [1, 1], False), picked
            self.value = pooled if grid.dim() == 4 else pooled.squeeze(2)

    def gradient(self, of_value: Tensor) -> Tensor:
        """The gradient of the grid, given that of ``value``."""
        if self._above < 0:
            for dim in range(2, of_value.dim()):
                even, odd = of_value.unflatten(dim, (-1, 2)).unbind(dim + 1)
                of_value = even + odd
        elif self._above > 0:
            row = of_value.dim() == 3
            plane = torch.ops.aten.max_pool2d_with_indices_backward(
                of_value.unsqueeze(2) if row else of_value, self._plane, *self._pool, self._picked
            )
            return plane.squeeze(2) if row else plane
        return of_value


def _differentiable_backward(
    ctx: Any, grad: Tensor, tensors: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The same gradients by PyTorch's own graph, for who wants theirs in turn."""

    def compute(own: list[Tensor]) -> list[Tensor]:
        weight, bias, *grids = own
        x = gather(Pyramid(ctx.lowest, tuple(grids)), ctx.level)
        y = reference.convolve(x, weight, bias)
        return [y.relu() if ctx.relu else y]

    wanted = (*ctx.needs_input_grad[2:4], *ctx.needs_input_grad[5:])
    d_weight, d_bias, *d_grids = twice.gradients(compute, tensors, wanted, (grad,))
    return None, None, d_weight, d_bias, None, *d_grids


def _cut(grids: Sequence[Tensor], weight: Tensor) -> list[slice]:
    """Slices of the samples, each with about ``_FLOATS`` values of the gathered input."""
    count = len(grids[0])
    size = weight.shape[1] * max(grid[0, 0].numel() for grid in grids)
    step = max(1, _FLOATS // size)
    return [slice(first, first + step) for first in range(0, count, step)]
