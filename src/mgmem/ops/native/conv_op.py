"""MG-conv by the kernels: a whole layer, all levels of it, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mgmem.ops import reference, twice
from mgmem.ops.native import library
from mgmem.ops.native.library import RELU
from mgmem.ops.native.tensors import cut, dense, filled, new_tensors, reached_inputs
from mgmem.pyramid import Pyramid


def conv_forward(
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
) -> list[Tensor]:
    """Grids (N, C, *space) to grids (N, channels, *space), one for each weight."""
    inputs, weights, biases = dense(inputs), dense(weights), dense(biases)
    shapes, meta = conv_plan(
        lowest_in, lowest_out, relu, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([weight.shape for weight in weights]),
    )  # fmt: skip
    outputs = [library.empty(shape) for shape in shapes]
    library.call("conv_forward", meta, [*inputs, *weights, *biases, *outputs])
    return outputs


@lru_cache(maxsize=4096)
def conv_plan(
    lowest_in: int,
    lowest_out: int,
    relu: bool,
    threads: int,
    inputs: tuple[torch.Size, ...],
    weights: tuple[torch.Size, ...],
) -> tuple[list[torch.Size], library.Numbers]:
    """Shapes of the outputs, and the call in numbers."""
    shapes = conv_shapes(inputs, weights, lowest_in, lowest_out)
    meta = library.numbers(
        weights[0][-1], 1, inputs[0][0], lowest_in, [shape[1:] for shape in inputs], lowest_out,
        [shape[1:] for shape in shapes], threads, RELU if relu else 0,
    )  # fmt: skip
    return shapes, meta


def conv_shapes(
    inputs: Sequence[torch.Size], weights: Sequence[torch.Size], lowest_in: int, lowest_out: int
) -> list[torch.Size]:
    """Shapes of the outputs: sides double from level to level."""
    batch, _, *base = inputs[0]
    shapes = []
    for level, weight in enumerate(weights, lowest_out - lowest_in):
        space = [side << level if level >= 0 else side >> -level for side in base]
        shapes.append(torch.Size((batch, weight[0], *space)))
    return shapes


def conv(
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
) -> tuple[Tensor, ...]:
    """``conv_forward`` with gradients."""
    counts = (len(inputs), len(weights), len(biases))
    call = (lowest_in, lowest_out, relu)
    outputs: tuple[Tensor, ...] = _Conv.apply(counts, call, *inputs, *weights, *biases)
    return outputs


class _Conv(torch.autograd.Function):
    """Nothing that traces or transforms comes here (see ``verify``): no operator of PyTorch's
    own kind is needed, whose wrapping takes as long as a small layer.
    """

    @staticmethod
    def forward(
        ctx: Any, counts: tuple[int, int, int], call: tuple[int, int, bool], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        inputs, weights, biases = cut(tensors, counts)
        outputs = tuple(conv_forward(inputs, weights, biases, *call))
        ctx.counts, ctx.call = counts, call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Gradients; None for what the loss does not reach, as plain operations would have it."""
        lowest_in, lowest_out, relu = ctx.call
        grids, weights, biases, outputs = cut(ctx.saved_tensors, [*ctx.counts, len(grads)])
        reached = [grad is not None for grad in grads]
        below = reached_inputs(reached, len(grids), lowest_in, lowest_out)
        needed = ctx.needs_input_grad[2:]
        wanted = [n and r for n, r in zip(needed, [*below, *reached, *reached], strict=True)]
        dealt: list[Tensor | None] = [None] * len(wanted)
        if any(wanted) and twice.wanted_again(grads):

            def compute(own: list[Tensor]) -> tuple[Tensor, ...]:
                x, w, b = cut(own, ctx.counts)
                inputs = Pyramid(lowest_in, tuple(x))
                return reference.conv_layer(inputs, w, b, lowest_out, relu).grids

            dealt = twice.gradients(compute, [*grids, *weights, *biases], wanted, grads)
        elif any(wanted):
            dealt = _conv_backward(
                filled(grads, outputs), grids, outputs, weights, wanted, ctx.call
            )
        return None, None, *dealt


def _conv_backward(
    grads: Sequence[Tensor],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    wanted: Sequence[bool],
    call: tuple[int, int, bool],
) -> list[Tensor | None]:
    """Gradients of the wanted ones among inputs, weights and biases, in this order."""
    grads, inputs, weights = dense(grads), dense(inputs), dense(weights)
    shapes = [*(t.shape for t in (*inputs, *weights)), *(weight.shape[:1] for weight in weights)]
    results = new_tensors(shapes, wanted)
    _, meta = conv_plan(
        *call, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([weight.shape for weight in weights]),
    )  # fmt: skip
    library.call("conv_backward", meta, [*inputs, *weights, *outputs, *grads, *results])
    return results
