"""A large network that begins with what a smaller one has learned.

The smaller one's channels go on reading each other as they did, on the levels that both have; what
they read of channels that are new starts at zero. A memory so grown writes in its first channels
what the smaller one wrote, but for residuals: they add channel to channel, new ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.nn.conv import MultigridConv
from mgmem.nn.lstm import MultigridConvLSTM
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.read_write import ReadWrite
from mgmem.nn.reader import MultigridReader
from mgmem.spec import LayerSpec

_GATES = 4


class _Below(NamedTuple):
    """What a layer reads: levels, and channels by where they come from (a layer, its memory)."""

    levels: range
    channels: tuple[int, ...]

    @classmethod
    def of(cls, layer: LayerSpec, seen: int = 0) -> _Below:
        return cls(layer.levels, (layer.channels, seen))

    def read(self, level: int) -> list[tuple[int, int, int]]:
        """(step in levels, origin, channel) of all that a grid reads, in the order of weights."""
        return [
            (step, origin, channel)
            for step in (-1, 0, 1)
            if level + step in self.levels
            for origin, count in enumerate(self.channels)
            for channel in range(count)
        ]


@torch.no_grad()
def grow(large: ReadWrite, small: ReadWrite, inputs: Sequence[float] = ()) -> None:
    """Put the smaller network's weights in place of the larger one's, as far as they go.

    All of its memory, and of each reader all layers but the one that answers. ``inputs``: factors
    of what comes in by each channel, where the larger network is told it in another measure.
    """
    channels = small.memory.input.channels
    if not _holds(large.memory.input, small.memory.input):
        raise UsageError(
            f"a memory on input {large.memory.input} has no room for one on {small.memory.input}"
        )
    if inputs and len(inputs) != channels:
        raise UsageError(
            f"{len(inputs)} factors for an input of {channels} channels: give each one"
        )
    _grow_memory(large.memory, small.memory, inputs)
    for reader, smaller in zip(large.readers, small.readers, strict=True):
        _grow_reader(cast("MultigridReader", reader), cast("MultigridReader", smaller))


def _grow_memory(large: MultigridMemory, small: MultigridMemory, inputs: Sequence[float]) -> None:
    below, smaller_below = _Below.of(large.input), _Below.of(small.input)
    for index, smaller in enumerate(small.layers):
        layer = large.layers[index] if index < len(large.layers) else None
        assert isinstance(smaller, MultigridConvLSTM)
        if not isinstance(layer, MultigridConvLSTM) or not _holds(layer.layer, smaller.layer):
            raise UsageError(f"a memory {large.spec} has no room for one of {small.spec}")
        count, own = smaller.layer.channels, layer.layer.channels
        rows = [gate * own + channel for gate in range(_GATES) for channel in range(count)]
        for level in smaller.layer.levels:
            to, source = level - layer.layer.lowest, level - smaller.layer.lowest
            weight = smaller.input_weights[source]
            reads = smaller_below.read(level)
            if inputs and index == 0:
                factors = weight.new_tensor([inputs[channel] for _, _, channel in reads])
                weight = weight * factors.view(-1, *[1] * (weight.dim() - 2))
            _put(layer.input_weights[to], weight, rows, reads, below.read(level))
            held = [(0, 0, channel) for channel in range(own)]
            recurrent = smaller.recurrent_weights[source]
            _put(layer.recurrent_weights[to], recurrent, rows, held[:count], held)
            layer.biases[to][rows] = smaller.biases[source]
        below, smaller_below = _Below.of(layer.layer), _Below.of(smaller.layer)


def _grow_reader(large: MultigridReader, small: MultigridReader) -> None:
    below, smaller_below = _Below.of(large.input), _Below.of(small.input)
    for index, smaller in enumerate(list(small.layers)[:-1]):
        layer = large.layers[index] if index < len(large.layers) else None
        assert isinstance(smaller, MultigridConv)
        if not isinstance(layer, MultigridConv) or not _holds(layer.layer, smaller.layer):
            raise UsageError(f"a reader {large.spec} has no room for one of {small.spec}")
        rows = list(range(smaller.layer.channels))
        for level in smaller.layer.levels:
            to, source = level - layer.layer.lowest, level - smaller.layer.lowest
            reads = smaller_below.read(level)
            _put(layer.weights[to], smaller.weights[source], rows, reads, below.read(level))
            layer.biases[to][rows] = smaller.biases[source]
        below = _Below.of(layer.layer, _seen(large, index))
        smaller_below = _Below.of(smaller.layer, _seen(small, index))


def _seen(reader: MultigridReader, index: int) -> int:
    """Channels of the memory that a reader's layer hands on beside its own."""
    assert reader.sees is not None
    return reader.sees[index].channels if index < len(reader.sees) else 0


def _holds(large: LayerSpec, small: LayerSpec) -> bool:
    return large.channels >= small.channels and set(small.levels) <= set(large.levels)


def _put(
    to: nn.Parameter,
    weight: Tensor,
    rows: Sequence[int],
    reads: Sequence[tuple[int, int, int]],
    all_read: Sequence[tuple[int, int, int]],
) -> None:
    """``weight`` into these rows, in the columns of what it reads; the rows' others are zero."""
    columns = torch.tensor([all_read.index(place) for place in reads])
    to[rows] = 0
    to[torch.tensor(rows)[:, None], columns] = weight
