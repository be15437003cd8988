"""Networks recorded as native programs: what a recording is given, makes, and when it is valid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from mgmem.ops.native import library
from mgmem.ops.native.program import Place, Program

Kind = Literal["parameter", "given", "made"]
_LARGE = 1 << 20
"""Floats from which on nothing is recorded: large grids have little between their layers."""
_KEPT = 4
"""Recordings of one network."""


class Recording:
    """A program and its tensors from outside: parameters, then what is given, then results."""

    def __init__(self, threads: int) -> None:
        self.program = Program(threads)
        self._parameters: list[torch.Size] = []
        self._given: list[torch.Size] = []
        self._made: list[Tensor] = []  # what results look like; never written, so no real memory
        self._known: list[int] = []
        self._running = threading.Lock()

    def take(
        self,
        kind: Kind,
        shape: Sequence[int],
        leading: Sequence[int] | None = None,
    ) -> Place:
        """A tensor from outside; all of one kind before those of the next.

        It has this shape or, with ``leading``, these dimensions in place of the first.
        """
        size = torch.Size(shape if leading is None else (*leading, *shape[1:]))
        if kind == "made":
            self._made.append(torch.empty(size, dtype=torch.float32, device="cpu"))
        else:
            (self._parameters if kind == "parameter" else self._given).append(size)
        return self.program.tensor(shape)

    @property
    def small(self) -> bool:
        """Whether it is worth keeping: by its results and the program's own memory."""
        return self.program.own + sum(tensor.numel() for tensor in self._made) < _LARGE

    def run(self, parameters: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor] | None:
        """New tensors, or None where something does not fit or another thread is in here."""
        if not self._running.acquire(blocking=False):
            return None
        try:
            pointers = [parameter.data_ptr() for parameter in parameters]
            if pointers != self._known:
                if not _fit(parameters, self._parameters):
                    return None
                self._known = pointers
            if not _fit(given, self._given):
                return None
            made = list(map(torch.empty_like, self._made))
            self.program.run([*pointers, *[tensor.data_ptr() for tensor in (*given, *made)]])
            return made
        finally:
            self._running.release()


def _fit(tensors: Sequence[Tensor], shapes: Sequence[torch.Size]) -> bool:
    if len(tensors) != len(shapes):
        return False
    float32 = torch.float32
    for tensor, shape in zip(tensors, shapes, strict=True):
        if tensor.shape != shape or tensor.dtype is not float32:
            return False
        if not tensor.is_cpu or not tensor.is_contiguous():
            return False
    return True


_recordings: WeakKeyDictionary[nn.Module, dict[Hashable, Recording | None]] = WeakKeyDictionary()


def recording_of(
    network: nn.Module, key: tuple[Hashable, ...], record: Callable[[Recording], None]
) -> Recording | None:
    """The network's recording under this key, made if there is none yet; None: it is too large.

    The key holds everything that decides about the program, but not the network itself, which
    could then never be freed.
    """
    threads = library.threads()
    found = _recordings.setdefault(network, {})
    key = (*key, threads)
    try:
        return found[key]
    except KeyError:
        recording = Recording(threads)
        record(recording)
        for old in list(found)[: len(found) - _KEPT + 1]:
            found.pop(old, None)
        found[key] = recording if recording.small else None
        return found[key]


def plain_parameters(layers: Sequence[nn.Module], kind: type[nn.Module]) -> list[Tensor] | None:
    """The layers' parameters in order; None where calling a layer may do more than its forward.

    That is a layer of another class, with a norm, or with hooks.
    """
    if _has_any_global_hook():
        return None
    found: list[Any] = []
    for layer in layers:
        if type(layer) is not kind or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        for child in layer._modules.values():
            if type(child) is not nn.ParameterList:
                return None
            found += child._parameters.values()
    return found
