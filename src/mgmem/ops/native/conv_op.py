"""MG-conv as a PyTorch operator, ``mgmem::native_conv``.

It covers a whole layer, all levels of it, and has a backward operator and shapes for tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mgmem.ops import reference, twice
from mgmem.ops.native import library
from mgmem.ops.native.library import RELU
from mgmem.ops.native.tensors import cut, deal, dense, filled, new_tensors, reached_inputs
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


@torch.library.custom_op("mgmem::native_conv", mutates_args=(), device_types="cpu")
def native_conv(
    inputs: list[Tensor],
    weights: list[Tensor],
    biases: list[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
) -> list[Tensor]:
    """``conv_forward`` as an operator."""
    return conv_forward(inputs, weights, biases, lowest_in, lowest_out, relu)


@native_conv.register_fake
def _(
    inputs: list[Tensor],
    weights: list[Tensor],
    biases: list[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
) -> list[Tensor]:
    of_inputs, of_weights = ([t.shape for t in tensors] for tensors in (inputs, weights))
    shapes = conv_shapes(of_inputs, of_weights, lowest_in, lowest_out)
    return [inputs[0].new_empty(shape) for shape in shapes]


@torch.library.custom_op("mgmem::native_conv_backward", mutates_args=(), device_types="cpu")
def native_conv_backward(
    grads: list[Tensor],
    inputs: list[Tensor],
    outputs: list[Tensor],
    weights: list[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of the wanted ones among inputs, weights and biases, in this order."""
    grads, inputs, weights = dense(grads), dense(inputs), dense(weights)
    like = [*inputs, *weights, *(weight.new_empty(weight.shape[0]) for weight in weights)]
    results = new_tensors(like, wanted)
    _, meta = conv_plan(
        lowest_in, lowest_out, relu, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([weight.shape for weight in weights]),
    )  # fmt: skip
    library.call("conv_backward", meta, [*inputs, *weights, *outputs, *grads, *results])
    return [result for result in results if result is not None]


@native_conv_backward.register_fake
def _(
    grads: list[Tensor],
    inputs: list[Tensor],
    outputs: list[Tensor],
    weights: list[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
    wanted: list[bool],
) -> list[Tensor]:
    like = [*inputs, *weights, *(weight.new_empty(weight.shape[0]) for weight in weights)]
    return [result for result in new_tensors(like, wanted) if result is not None]


def _conv_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    grids, weights, biases, ctx.lowest_in, ctx.lowest_out, ctx.relu = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*grids, *weights, *biases, *output)
    ctx.counts = (len(grids), len(weights), len(biases), len(output))


def _conv_grad(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    """Gradients; None for what the loss does not reach, as plain operations would have it."""
    grids, weights, biases, outputs = cut(ctx.saved_tensors, ctx.counts)
    reached = [grad is not None for grad in grads]
    below = reached_inputs(reached, len(grids), ctx.lowest_in, ctx.lowest_out)
    needed = [w for group in ctx.needs_input_grad[:3] for w in group]
    wanted = [n and r for n, r in zip(needed, [*below, *reached, *reached], strict=True)]
    counts = (len(grids), len(weights), len(biases))
    dealt: list[Tensor | None] = [None] * sum(counts)
    if any(wanted) and twice.wanted_again(grads):

        def compute(own: list[Tensor]) -> tuple[Tensor, ...]:
            x, w, b = cut(own, counts)
            inputs = Pyramid(ctx.lowest_in, tuple(x))
            return reference.conv_layer(inputs, w, b, ctx.lowest_out, ctx.relu).grids

        dealt = twice.gradients(compute, [*grids, *weights, *biases], wanted, grads)
    elif any(wanted):
        found = native_conv_backward(
            filled(grads, outputs), grids, outputs, weights,
            ctx.lowest_in, ctx.lowest_out, ctx.relu, wanted,
        )  # fmt: skip
        dealt = deal(found, wanted)
    return *cut(dealt, counts), None, None, None


native_conv.register_autograd(_conv_grad, setup_context=_conv_context)
