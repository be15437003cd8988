"""The kernels as PyTorch operators: ``mgmem::native_conv`` and ``mgmem::native_lstm``.

Each covers a whole layer, all levels of it, and has a backward operator and shapes for tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from mgmem.ops.native import library
from mgmem.ops.native.library import ACTIVE, PEEPHOLE, RELU, RESET, SAVE

_Maybe = Sequence[Tensor | None]


_NONE: list[Tensor | None] = [None]


def _dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]


def _new(like: Tensor, shape: Sequence[int]) -> Tensor:
    return like.new_empty(shape) if isinstance(like, FakeTensor) else library.empty(shape)


def _new_like(tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    return [_new(t, t.shape) if w else None for t, w in zip(tensors, wanted, strict=True)]


# --- MG-conv ---------------------------------------------------------------------------------


def conv_forward(
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    lowest_in: int,
    lowest_out: int,
    relu: bool,
) -> list[Tensor]:
    """Grids (N, C, *space) to grids (N, channels, *space), one for each weight."""
    inputs, weights, biases = _dense(inputs), _dense(weights), _dense(biases)
    shapes, meta = _conv_plan(
        lowest_in, lowest_out, relu, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([weight.shape for weight in weights]),
    )  # fmt: skip
    outputs = [library.empty(shape) for shape in shapes]
    library.call("conv_forward", meta, [*inputs, *weights, *biases, *outputs])
    return outputs


@lru_cache(maxsize=4096)
def _conv_plan(
    lowest_in: int,
    lowest_out: int,
    relu: bool,
    threads: int,
    inputs: tuple[torch.Size, ...],
    weights: tuple[torch.Size, ...],
) -> tuple[list[torch.Size], library.Numbers]:
    """Shapes of the outputs, and the call in numbers."""
    shapes = _conv_shapes(inputs, weights, lowest_in, lowest_out)
    meta = library.numbers(
        weights[0][-1], 1, inputs[0][0], lowest_in, [shape[1:] for shape in inputs], lowest_out,
        [shape[1:] for shape in shapes], threads, RELU if relu else 0,
    )  # fmt: skip
    return shapes, meta


def _conv_shapes(
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
    shapes = _conv_shapes(of_inputs, of_weights, lowest_in, lowest_out)
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
    grads, inputs, weights = _dense(grads), _dense(inputs), _dense(weights)
    like = [*inputs, *weights, *(weight.new_empty(weight.shape[0]) for weight in weights)]
    results = _new_like(like, wanted)
    _zero_unread(results, len(inputs), lowest_in, lowest_out, len(weights))
    _, meta = _conv_plan(
        lowest_in, lowest_out, relu, library.threads(),
        tuple([grid.shape for grid in inputs]), tuple([weight.shape for weight in weights]),
    )  # fmt: skip
    library.call("conv_backward", meta, [*inputs, *weights, *outputs, *grads, *results])
    return [result for result in results if result is not None]


def _zero_unread(
    results: _Maybe, inputs: int, lowest_in: int, lowest_out: int, outputs: int
) -> None:
    """Levels that no level of this layer reads are not touched by the kernels."""
    for level, grad in enumerate(results[:inputs], lowest_in):
        if grad is not None and not lowest_out - 1 <= level <= lowest_out + outputs:
            grad.zero_()


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
    return [result for result in _new_like(like, wanted) if result is not None]


def _conv_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    grids, weights, _, ctx.lowest_in, ctx.lowest_out, ctx.relu = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*grids, *weights, *output)
    ctx.counts = (len(grids), len(weights), len(output))


def _conv_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    grids, weights, outputs = _cut(ctx.saved_tensors, ctx.counts)
    wanted = [w for group in ctx.needs_input_grad[:3] for w in group]
    found = native_conv_backward(
        _filled(grads, outputs), grids, outputs, weights,
        ctx.lowest_in, ctx.lowest_out, ctx.relu, wanted,
    )  # fmt: skip
    dealt = _deal(found, wanted)
    return *_cut(dealt, (len(grids), len(weights), len(weights))), None, None, None


def _cut(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    parts, start = [], 0
    for count in counts:
        parts.append(list(items[start : start + count]))
        start += count
    return parts


def _deal(found: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    supply = iter(found)
    return [next(supply) if w else None for w in wanted]


def _filled(grads: _Maybe, like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros for the outputs that nothing depends on."""
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True)]


native_conv.register_autograd(_conv_grad, setup_context=_conv_context)


# --- MG-conv-LSTM ----------------------------------------------------------------------------


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
    inputs, hidden, cell = _dense(inputs), _dense(hidden), _dense(cell)
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
            *_dense(w_in), *_dense(w_rec), *_dense(bias), *(_dense(peephole) or _NONE * levels),
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
    return [_new(hidden[0], (size,)) for size in sizes]


@lru_cache(maxsize=4096)
def _lstm_plan(
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
    return _lstm_plan(
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
    inputs, hidden, cell = _dense(inputs), _dense(hidden), _dense(cell)
    w_in, w_rec, peephole = _dense(w_in), _dense(w_rec), _dense(peephole)
    levels = len(hidden)
    results = _lstm_results(inputs, hidden, cell, w_in, w_rec, peephole, wanted)
    _zero_unread(results, len(inputs), lowest_in, lowest_out, levels)
    meta = _lstm_numbers(inputs, hidden, w_in, peephole, reset, active, lowest_in, lowest_out, True)
    library.call(
        "lstm_backward",
        meta,
        [
            *_flags(reset, active), *inputs, *hidden, *cell, *w_in, *w_rec,
            *(peephole or _NONE * levels), *outputs, *saved, *_dense(grads),
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
    return _new_like([*inputs, *hidden, *cell, *w_in, *w_rec, *bias, *peephole], wanted)


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
    grids, hidden, cell, w_in, w_rec, _, peephole, reset, active, low_in, low_out = inputs
    levels = len(hidden)
    kept = (grids, hidden, cell, w_in, w_rec, peephole, output[:levels], output[3 * levels :])
    ctx.save_for_backward(reset, active, *(tensor for group in kept for tensor in group))
    ctx.set_materialize_grads(False)
    ctx.counts = [len(group) for group in kept]
    ctx.lowest = (low_in, low_out)


def _lstm_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    reset, active, *tensors = ctx.saved_tensors
    kept = _cut(tensors, ctx.counts)
    grids, hidden, cell, w_in, w_rec, peephole, outputs, saved = kept
    levels = len(hidden)
    wanted = [w for group in ctx.needs_input_grad[:7] for w in group]
    like = [*outputs, *hidden, *cell]
    found = native_lstm_backward(
        _filled(grads[: 3 * levels], like), grids, hidden, cell, w_in, w_rec, peephole, outputs,
        saved, reset, active, *ctx.lowest, wanted,
    )  # fmt: skip
    counts = (len(grids), levels, levels, levels, levels, levels, len(peephole))
    return *_cut(_deal(found, wanted), counts), None, None, None, None


native_lstm.register_autograd(_lstm_grad, setup_context=_lstm_context)
