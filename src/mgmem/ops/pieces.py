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
from mgmem.pyramid import Pyramid, gather

_FLOATS = 1 << 21
"""Values of a gathered input that are worked on at once."""


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv; see ``reference.conv_layer``."""
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
        y = reference.convolve(gather(inputs.map(channels_last), level), weight, bias)
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
        count = len(grids[0])
        output: Tensor | None = None
        for piece in _cut(grids, weight):
            x = gather(Pyramid(lowest, tuple(channels_last(grid[piece]) for grid in grids)), level)
            y = reference.convolve(x, weight, bias)
            if relu:
                y.relu_()
            if output is None:
                layout = torch.channels_last if y.dim() == 4 else torch.contiguous_format
                shape = (count, *y.shape[1:])
                output = torch.empty(shape, dtype=y.dtype, memory_format=layout)
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
        to_grids = any(wanted[5:])
        results = [
            torch.empty_like(grid) if want else None
            for grid, want in zip(grids, wanted[5:], strict=True)
        ]
        d_weight, d_bias = torch.zeros_like(weight), weight.new_zeros(weight.shape[0])
        pad = [weight.shape[-1] // 2] * (weight.dim() - 2)
        for piece in _cut(grids, weight):
            g = channels_last(grad[piece])
            if output is not None:
                g = g.masked_fill(output[piece] == 0, 0)
            with torch.enable_grad():
                leaves = [channels_last(grid[piece]).detach() for grid in grids]
                for leaf, want in zip(leaves, wanted[5:], strict=True):
                    leaf.requires_grad_(want)
                x = gather(Pyramid(ctx.lowest, tuple(leaves)), ctx.level)
            dx, dw, db = torch.ops.aten.convolution_backward(
                g, x.detach(), weight, [weight.shape[0]], [1] * len(pad), pad, [1] * len(pad),
                False, [0] * len(pad), 1, [to_grids, wanted[2], wanted[3]],
            )  # fmt: skip
            if wanted[2]:
                d_weight += dw
            if wanted[3]:
                d_bias += db
            if to_grids:
                asked = [leaf for leaf in leaves if leaf.requires_grad]
                found = iter(torch.autograd.grad(x, asked, dx))
                for result in results:
                    if result is not None:
                        result[piece] = next(found)
        return None, None, d_weight, d_bias, None, *results


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
