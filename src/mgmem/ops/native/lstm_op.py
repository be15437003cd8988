"""MG-conv-LSTM over a sequence as a PyTorch operator, ``mgmem::native_lstm``.

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
from mgmem.ops.native.library import ACTIVE, PEEPHOLE, RESET, SAVE
from mgmem.ops.native.tensors import (
    cut,
    deal,
    dense,
    filled,
    new_tensor,
    new_tensors,
    reached_inputs,
)
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

_NONE: list[Tensor | None] = [None]


def lstm_forward(
    inputs: Sequence[Tensor],
    hidden: Sequence[Tensor],
    cell: Sequence[Tensor],
    w_in: Sequence[Tensor],
    w_rec: Sequence[Tensor],
    bias: Sequence[Tensor],
    peephole: Sequence[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
    save: bool,
) -> list[Tensor]:
    """Outputs, last h, last c and (``save``) what backward needs: one of each for every level."""
    inputs, hidden, cell = dense(inputs), dense(hidden), dense(cell)
    time, levels = inputs[0].shape[0], len(hidden)
    meta = _lstm_numbers(inputs, hidden, w_in, peephole, reset, active, lowest_in, lowest_out, save)
    outputs = [library.empty((time, *h.shape)) for h in hidden]
    states = [library.empty(s.shape) for s in (*hidden, *cell)]
    saved = _new_saved(inputs, hidden, w_in, active) if save else []
    library.call(
        "lstm_forward",
        meta,
        [
            *_flags(reset, active), *inputs, *hidden, *cell,
            *dense(w_in), *dense(w_rec), *dense(bias), *(dense(peephole) or _NONE * levels),
            *outputs, *states, *(saved or _NONE * levels),
        ],
    )  # fmt: skip
    return [*outputs, *states, *saved]


def _flags(reset: Tensor | None, active: Tensor | None) -> list[Tensor | None]:
    return [None if flags is None else flags.contiguous() for flags in (reset, active)]


def _new_saved(
    inputs: Sequence[Tensor],
    hidden: Sequence[Tensor],
    w_in: Sequence[Tensor],
    active: Tensor | None,
) -> list[Tensor]:
    time, batch, kernel = inputs[0].shape[0], hidden[0].shape[0], w_in[0].shape[-1]
    sizes = [
        library.saved_size(time, batch, tuple(h.shape[1:]), kernel, active is not None)
        for h in hidden
    ]
    return [new_tensor(hidden[0], (size,)) for size in sizes]


@lru_cache(maxsize=4096)
def lstm_plan(
    lowest_in: int,
    lowest_out: int,
    flags: int,
    threads: int,
    inputs: tuple[torch.Size, ...],
    hidden: tuple[torch.Size, ...],
    kernel: int,
) -> library.Numbers:
    """The call in numbers."""
    return library.numbers(
        kernel, inputs[0][0], hidden[0][0], lowest_in, [shape[2:] for shape in inputs],
        lowest_out, [shape[1:] for shape in hidden], threads, flags,
    )  # fmt: skip


def _lstm_numbers(
    inputs: Sequence[Tensor],
    hidden: Sequence[Tensor],
    w_in: Sequence[Tensor],
    peephole: Sequence[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
    save: bool,
) -> library.Numbers:
    flags = (
        RESET * (reset is not None) | ACTIVE * (active is not None)
        | PEEPHOLE * bool(peephole) | SAVE * save
    )  # fmt: skip
    return lstm_plan(
        lowest_in, lowest_out, flags, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([h.shape for h in hidden]),
        w_in[0].shape[-1],
    )  # fmt: skip


@torch.library.custom_op("mgmem::native_lstm", mutates_args=(), device_types="cpu")
def native_lstm(
    inputs: list[Tensor],
    hidden: list[Tensor],
    cell: list[Tensor],
    w_in: list[Tensor],
    w_rec: list[Tensor],
    bias: list[Tensor],
    peephole: list[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
) -> list[Tensor]:
    """``lstm_forward`` as an operator, always saving; no peepholes are an empty list."""
    return lstm_forward(
        inputs, hidden, cell, w_in, w_rec, bias, peephole, reset, active,
        lowest_in, lowest_out, True,
    )  # fmt: skip


@native_lstm.register_fake
def _(
    inputs: list[Tensor],
    hidden: list[Tensor],
    cell: list[Tensor],
    w_in: list[Tensor],
    w_rec: list[Tensor],
    bias: list[Tensor],
    peephole: list[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
) -> list[Tensor]:
    outputs = [h.new_empty((inputs[0].shape[0], *h.shape)) for h in hidden]
    states = [s.new_empty(s.shape) for s in (*hidden, *cell)]
    return [*outputs, *states, *_new_saved(inputs, hidden, w_in, active)]


@torch.library.custom_op("mgmem::native_lstm_backward", mutates_args=(), device_types="cpu")
def native_lstm_backward(
    grads: list[Tensor],
    inputs: list[Tensor],
    hidden: list[Tensor],
    cell: list[Tensor],
    w_in: list[Tensor],
    w_rec: list[Tensor],
    peephole: list[Tensor],
    outputs: list[Tensor],
    saved: list[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of the wanted ones among the tensors of ``native_lstm``, in its order.

    ``grads`` are those of the outputs, the last h and the last c.
    """
    inputs, hidden, cell = dense(inputs), dense(hidden), dense(cell)
    w_in, w_rec, peephole = dense(w_in), dense(w_rec), dense(peephole)
    levels = len(hidden)
    results = _lstm_results(inputs, hidden, cell, w_in, w_rec, peephole, wanted)
    meta = _lstm_numbers(inputs, hidden, w_in, peephole, reset, active, lowest_in, lowest_out, True)
    library.call(
        "lstm_backward",
        meta,
        [
            *_flags(reset, active), *inputs, *hidden, *cell, *w_in, *w_rec,
            *(peephole or _NONE * levels), *outputs, *saved, *dense(grads),
            *results, *([] if peephole else _NONE * levels),
        ],
    )  # fmt: skip
    return [result for result in results if result is not None]


def _lstm_results(
    inputs: Sequence[Tensor],
    hidden: Sequence[Tensor],
    cell: Sequence[Tensor],
    w_in: Sequence[Tensor],
    w_rec: Sequence[Tensor],
    peephole: Sequence[Tensor],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    bias = [weight.new_empty(weight.shape[0]) for weight in w_in]
    return new_tensors([*inputs, *hidden, *cell, *w_in, *w_rec, *bias, *peephole], wanted)


@native_lstm_backward.register_fake
def _(
    grads: list[Tensor],
    inputs: list[Tensor],
    hidden: list[Tensor],
    cell: list[Tensor],
    w_in: list[Tensor],
    w_rec: list[Tensor],
    peephole: list[Tensor],
    outputs: list[Tensor],
    saved: list[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
    wanted: list[bool],
) -> list[Tensor]:
    results = _lstm_results(inputs, hidden, cell, w_in, w_rec, peephole, wanted)
    return [result for result in results if result is not None]


def _lstm_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *groups, reset, active, low_in, low_out = inputs
    levels = len(groups[1])
    kept = (*groups, output[:levels], output[3 * levels :])
    ctx.save_for_backward(reset, active, *(tensor for group in kept for tensor in group))
    ctx.set_materialize_grads(False)
    ctx.counts = [len(group) for group in kept]
    ctx.lowest = (low_in, low_out)


def _lstm_grad(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    """Gradients; None for what the loss does not reach, as plain operations would have it."""
    reset, active, *tensors = ctx.saved_tensors
    *groups, outputs, saved = cut(tensors, ctx.counts)
    grids, hidden, cell, w_in, w_rec, _, peephole = groups
    levels, counts = len(hidden), ctx.counts[:7]
    pulls = grads[: 3 * levels]
    reached = [any(pull is not None for pull in pulls[j::levels]) for j in range(levels)]
    below = reached_inputs(reached, len(grids), *ctx.lowest)
    needed = [w for group in ctx.needs_input_grad[:7] for w in group]
    of_levels = reached * (6 if peephole else 5)
    wanted = [n and r for n, r in zip(needed, [*below, *of_levels], strict=True)]
    dealt: list[Tensor | None] = [None] * sum(counts)
    if any(wanted) and twice.wanted_again(pulls):

        def compute(own: list[Tensor]) -> list[Tensor]:
            return _by_reference(cut(own, counts), reset, active, *ctx.lowest)

        flat = [tensor for group in groups for tensor in group]
        dealt = twice.gradients(compute, flat, wanted, pulls)
    elif any(wanted):
        found = native_lstm_backward(
            filled(pulls, [*outputs, *hidden, *cell]), grids, hidden, cell, w_in, w_rec, peephole,
            outputs, saved, reset, active, *ctx.lowest, wanted,
        )  # fmt: skip
        dealt = deal(found, wanted)
    return *cut(dealt, counts), None, None, None, None


def _by_reference(
    groups: Sequence[list[Tensor]],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
) -> list[Tensor]:
    """Outputs, last h and last c, from the tensors of ``native_lstm`` by plain operations."""
    grids, hidden, cell, w_in, w_rec, bias, peephole = map(tuple, groups)
    results = reference.lstm_layer(
        Pyramid(lowest_in, grids), Pyramid(lowest_out, hidden), Pyramid(lowest_out, cell),
        LSTMWeights(w_in, w_rec, bias, peephole or None), reset, active,
    )  # fmt: skip
    return [grid for pyramid in results for grid in pyramid.grids]


native_lstm.register_autograd(_lstm_grad, setup_context=_lstm_context)
