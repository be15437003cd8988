"""MG-conv-LSTM over a sequence by the kernels: a whole layer, all levels, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mgmem.ops import reference, twice
from mgmem.ops.native import library
from mgmem.ops.native.library import ACTIVE, PEEPHOLE, RESET, SAVE
from mgmem.ops.native.tensors import cut, dense, filled, new_tensors, reached_inputs
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

_NONE: list[Tensor | None] = [None]


def lstm_forward(
    groups: Sequence[Sequence[Tensor]],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
    save: bool,
) -> list[Tensor]:
    """Outputs, last h, last c and (``save``) what backward needs: one of each for every level.

    ``groups``: inputs, h and c before the first step, weights of the inputs, of the recurrence,
    biases, peepholes; one of each for every level.
    """
    inputs, hidden, cell, w_in, w_rec, bias, peephole = map(dense, groups)
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
            *w_in, *w_rec, *bias, *(peephole or _NONE * levels),
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
    return [library.empty((size,)) for size in sizes]


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


def lstm(
    groups: Sequence[Sequence[Tensor]],
    reset: Tensor | None,
    active: Tensor | None,
    lowest_in: int,
    lowest_out: int,
) -> tuple[Tensor, ...]:
    """Outputs, last h and last c of ``lstm_forward``, with gradients."""
    counts = [len(group) for group in groups]
    tensors = [tensor for group in groups for tensor in group]
    results: tuple[Tensor, ...] = _LSTM.apply(
        counts, (lowest_in, lowest_out), reset, active, *tensors
    )
    return results


class _LSTM(torch.autograd.Function):
    """As ``conv_op._Conv``."""

    @staticmethod
    def forward(
        ctx: Any,
        counts: Sequence[int],
        lowest: tuple[int, int],
        reset: Tensor | None,
        active: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        groups = cut(tensors, counts)
        found = lstm_forward(groups, reset, active, *lowest, save=True)
        levels = len(groups[1])
        outputs, saved = found[:levels], found[3 * levels :]
        ctx.counts, ctx.lowest = counts, lowest
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(reset, active, *tensors, *outputs, *saved)
        return tuple(found[: 3 * levels])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Gradients; None for what the loss does not reach, as plain operations would have it."""
        reset, active, *tensors = ctx.saved_tensors
        levels = len(grads) // 3
        *groups, outputs, saved = cut(tensors, [*ctx.counts, levels, levels])
        grids, hidden, cell, _, _, _, peephole = groups
        reached = [any(grad is not None for grad in grads[j::levels]) for j in range(levels)]
        below = reached_inputs(reached, len(grids), *ctx.lowest)
        of_levels = reached * (6 if peephole else 5)
        needed = ctx.needs_input_grad[4:]
        wanted = [n and r for n, r in zip(needed, [*below, *of_levels], strict=True)]
        dealt: list[Tensor | None] = [None] * len(wanted)
        if any(wanted) and twice.wanted_again(grads):

            def compute(own: list[Tensor]) -> list[Tensor]:
                return _by_reference(cut(own, ctx.counts), reset, active, *ctx.lowest)

            flat = [tensor for group in groups for tensor in group]
            dealt = twice.gradients(compute, flat, wanted, grads)
        elif any(wanted):
            pulls = filled(grads, [*outputs, *hidden, *cell])
            dealt = _lstm_backward(pulls, groups, outputs, saved, reset, active, ctx.lowest, wanted)
        return None, None, None, None, *dealt


def _lstm_backward(
    grads: Sequence[Tensor],
    groups: Sequence[Sequence[Tensor]],
    outputs: Sequence[Tensor],
    saved: Sequence[Tensor],
    reset: Tensor | None,
    active: Tensor | None,
    lowest: tuple[int, int],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """Gradients of the wanted ones among the tensors of ``groups``, in their order.

    ``grads`` are those of the outputs, the last h and the last c.
    """
    inputs, hidden, cell, w_in, w_rec, bias, peephole = map(dense, groups)
    none = _NONE * len(hidden)
    like = [*inputs, *hidden, *cell, *w_in, *w_rec, *bias, *peephole]
    results = new_tensors([tensor.shape for tensor in like], wanted)
    meta = _lstm_numbers(inputs, hidden, w_in, peephole, reset, active, *lowest, True)
    library.call(
        "lstm_backward",
        meta,
        [
            *_flags(reset, active), *inputs, *hidden, *cell, *w_in, *w_rec,
            *(peephole or none), *outputs, *saved, *dense(grads),
            *results, *([] if peephole else none),
        ],
    )  # fmt: skip
    return results


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
