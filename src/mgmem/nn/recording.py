"""Networks recorded as native programs: what a recording is given, makes, and when it is valid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import TensorGuards

from mgmem.ops.native import library
from mgmem.ops.native.program import Place, Program
from mgmem.ops.native.verify import readable

Kind = Literal["given", "made"]
_LARGE = 1 << 20
"""Floats from which on nothing is recorded: large grids have little between their layers."""
_KEPT = 4
"""Recordings of one network."""


class Recording:
    """A program and its tensors from outside: what is given, then results."""

    def __init__(self, threads: int) -> None:
        self.program = Program(threads)
        self._given: list[tuple[torch.Size, torch.dtype]] = []
        self._made: list[Tensor] = []  # what results look like; never written, so no real memory
        self._guard: TensorGuards | None = None
        self._running = threading.Lock()

    def take(
        self,
        kind: Kind,
        shape: Sequence[int],
        leading: Sequence[int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Place:
        """A tensor from outside; all that is given before all that is made.

        It has this shape or, with ``leading``, these dimensions in place of the first.
        """
        size = torch.Size(shape if leading is None else (*leading, *shape[1:]))
        if kind == "made":
            self._made.append(torch.empty(size, dtype=torch.float32, device="cpu"))
        else:
            self._given.append((size, dtype))
        return self.program.tensor(shape)

    @property
    def small(self) -> bool:
        """Whether it is worth keeping: by its results and the program's own memory."""
        return self.program.own + sum(tensor.numel() for tensor in self._made) < _LARGE

    def run(self, given: Sequence[Tensor]) -> list[Tensor] | None:
        """New tensors; None where something does not fit or another thread is in here."""
        if not self._running.acquire(blocking=False):
            return None
        try:
            if not self._fits(given):
                return None
            made = list(map(torch.empty_like, self._made))
            self.program.run([tensor.data_ptr() for tensor in (*given, *made)])
            return made
        except library.Infinite:
            return None
        finally:
            self._running.release()

    def _fits(self, given: Sequence[Tensor]) -> bool:
        """Whether the kernels can read all of it, parameters too: any may be another by now.

        PyTorch's guard compares class, dtype, device, shape, strides and the negative bit of all
        with those found right before, in a fraction of the time that looking at each takes.
        """
        if len(given) != len(self._given):
            return False
        if self._guard is not None and self._guard.check(*given):
            return True
        for tensor, (shape, dtype) in zip(given, self._given, strict=True):
            if tensor.shape != shape or not tensor.is_contiguous():
                return False
            if not readable(tensor, dtype):
                return False
        self._guard = TensorGuards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
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
