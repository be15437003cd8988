"""Layers recorded once and run again and again in one call.

For one time step of a small network the work between the layers (new tensors, checks, shapes,
packing of weights) takes longer than the layers. A program keeps all of it from run to run. The
weights are read on every run, so changes in place are seen.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch

from mgmem.ops.checks import check_conv_shapes, check_lstm_shapes
from mgmem.ops.native import library
from mgmem.ops.native.conv_op import conv_plan
from mgmem.ops.native.lstm_op import lstm_plan

_CONV, _LSTM, _MOVE = range(3)
_NULL = -1


class Place(NamedTuple):
    """Where a tensor of a program is: a tensor of every run, or the program's memory."""

    slot: int
    shape: torch.Size


class Places(NamedTuple):
    """A pyramid of them; shapes (samples, channels, *space)."""

    lowest: int
    grids: list[Place]


def _shapes(places: Sequence[Place]) -> tuple[torch.Size, ...]:
    return tuple([place.shape for place in places])


class Program:
    """To be recorded step by step, then run; not by two threads at once."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._tensors = 0
        self._numbers: list[int] = []
        self._steps = 0
        self.own = 0
        """Floats of the program's own memory."""
        self._handle: int | None = None

    def tensor(self, shape: Sequence[int]) -> Place:
        """A contiguous tensor that every run brings, in the order of these calls."""
        self._tensors += 1
        return Place(self._tensors - 1, torch.Size(shape))

    def memory(self, shape: Sequence[int]) -> Place:
        """A tensor in the program's own memory."""
        start = self.own
        self.own += -(-math.prod(shape) // 16) * 16
        return Place(-2 - start, torch.Size(shape))

    def conv(
        self, inputs: Places, weights: Sequence[Sequence[Place]], outputs: Places, relu: bool
    ) -> None:
        """MG-conv; see ``reference.conv_layer``. ``weights``: and the biases."""
        below, kernels, biases = map(_shapes, (inputs.grids, *weights))
        check_conv_shapes(inputs.lowest, outputs.lowest, below, kernels, biases)
        _, meta = conv_plan(
            inputs.lowest, outputs.lowest, relu, self._threads, below, kernels
        )  # fmt: skip
        self._add(_CONV, list(meta), [*inputs.grids, *weights[0], *weights[1], *outputs.grids])

    def lstm(
        self,
        inputs: Places,
        state: Sequence[Places],
        weights: Sequence[Sequence[Place]],
        outputs: Sequence[Places],
        reset: Place | None = None,
    ) -> None:
        """One step of MG-conv-LSTM without peepholes.

        ``state``: h and c. ``weights``: of the input, of the recurrence, biases. ``outputs``: the
        layer's output, the new h, the new c. ``reset``: (1, batch) bool.
        """
        hidden, cell = state
        below = tuple([torch.Size((1, *place.shape)) for place in inputs.grids])
        shapes = [_shapes(group) for group in (hidden.grids, cell.grids, *weights)]
        check_lstm_shapes(inputs.lowest, hidden.lowest, below, *shapes)
        meta = lstm_plan(
            inputs.lowest, hidden.lowest, library.RESET if reset else 0, self._threads,
            below, shapes[0], weights[0][0].shape[-1],
        )  # fmt: skip
        none = [Place(_NULL, torch.Size())] * len(hidden.grids)
        places = [
            reset or none[0], none[0], *inputs.grids, *hidden.grids, *cell.grids,
            *(place for group in weights for place in group), *none,
            *(place for pyramid in outputs for place in pyramid.grids), *none,
        ]  # fmt: skip
        self._add(_LSTM, list(meta), places)

    def copy(self, source: Place, to: Place, channel: int) -> None:
        """The channels of ``source`` to those of ``to`` from ``channel`` on."""
        self._move(source, to, channel, add=False)

    def add(self, source: Place, to: Place) -> None:
        """The channels of ``source``, added to the first ones of ``to``."""
        self._move(source, to, 0, add=True)

    def _move(self, source: Place, to: Place, channel: int, add: bool) -> None:
        row, count = math.prod(to.shape[1:]), math.prod(source.shape[1:])
        start = channel * math.prod(to.shape[2:])
        self._add(_MOVE, [to.shape[0], count, row, start, count, int(add)], [to, source])

    def _add(self, kind: int, meta: Sequence[int], places: Sequence[Place]) -> None:
        slots = [place.slot for place in places]
        self._numbers += [kind, len(meta), *meta, len(slots), *slots]
        self._steps += 1

    def run(self, pointers: Sequence[int]) -> None:
        """Run on tensors at these addresses, one for each call of ``tensor``."""
        assert len(pointers) == self._tensors
        if self._handle is None:
            self._load()
        addresses = array("q", pointers)
        library.check(self._run(self._handle, addresses.buffer_info()[0]))

    def _load(self) -> None:
        kernels = library.load()
        assert kernels is not None, "the native backend is not available"
        values = [self.own, self._steps, *self._numbers]
        self._run, self._free = kernels.mg_program_run, kernels.mg_program_free
        self._handle = kernels.mg_program_new((ctypes.c_int64 * len(values))(*values))
        if self._handle is None:
            library.check(1)

    def __del__(self) -> None:
        if self._handle is not None:
            self._free(self._handle)
