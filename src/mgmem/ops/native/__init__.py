"""Compiled kernels for the processor: whole layers in float32, forward and backward.

Called with tensors that fit together (``ops.checks``) and that the kernels can read (``verify``).
Without a C++ compiler, ``available()`` is False and the other backends do the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mgmem.ops import reference
from mgmem.ops.native import conv_op, library, lstm_op
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

__all__ = ["available", "conv_layer", "lstm_layer"]


def available() -> bool:
    """Whether the kernels are there; the first call compiles them."""
    return library.load() is not None


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv; see ``reference.conv_layer``."""
    grids, weights, biases = list(inputs.grids), list(weights), list(biases)
    run: Any = conv_op.conv if _learning(*grids, *weights, *biases) else conv_op.conv_forward
    try:
        return Pyramid(lowest, tuple(run(grids, weights, biases, inputs.lowest, lowest, relu)))
    except library.Infinite:
        return reference.conv_layer(inputs, weights, biases, lowest, relu)


def lstm_layer(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Pyramid, Pyramid, Pyramid]:
    """MG-conv-LSTM over a sequence; see ``reference.lstm_layer``."""
    levels, lowest = len(hidden), hidden.lowest
    if inputs.grids[0].shape[0] == 0:
        return hidden.map(lambda h: h.new_zeros((0, *h.shape))), hidden, cell
    peephole = [
        weight.expand(3, *h.shape[1:])
        for weight, h in zip(weights.peephole or (), hidden.grids, strict=False)
    ]
    tensors: list[list[Tensor]] = [
        list(group)
        for group in (
            inputs.grids, hidden.grids, cell.grids,
            weights.input, weights.recurrent, weights.bias, peephole,
        )
    ]  # fmt: skip
    call = (reset, active, inputs.lowest, lowest)
    try:
        if _learning(*(tensor for group in tensors for tensor in group)):
            results: Sequence[Tensor] = lstm_op.lstm(tensors, *call)
        else:
            results = lstm_op.lstm_forward(tensors, *call, save=False)
    except library.Infinite:
        return reference.lstm_layer(inputs, hidden, cell, weights, reset, active)
    outputs, last_hidden, last_cell = (
        Pyramid(lowest, tuple(results[i * levels : (i + 1) * levels])) for i in range(3)
    )
    return outputs, last_hidden, last_cell


def _learning(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
