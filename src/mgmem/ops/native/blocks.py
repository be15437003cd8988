"""Memory that is used again and again.

Outputs and what backward needs are tens to hundreds of MB a layer. Fresh pages cost more time than
the arithmetic that fills them, so blocks that PyTorch has let go serve the next update, also where
it is somewhat smaller, as with sequences of different lengths. They are given back as soon as other
sizes are asked for, and when nothing has asked for them for a while.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 18
"""Floats from which on memory is kept."""
_IDLE_SECONDS = 20.0
_ROOM = 1.25
"""How much larger a block may be than what is to lie in it."""


class Idle:
    """Blocks that wait for a tensor of about their size, the longest idle first."""

    def __init__(self) -> None:
        self._blocks: list[tuple[float, Tensor]] = []
        self._lock = threading.RLock()
        """Blocks come back from any thread, and from the garbage collector inside of any call."""

    @property
    def floats(self) -> int:
        """All that is held."""
        return sum(block.numel() for _, block in list(self._blocks))

    def take(self, count: int) -> Tensor:
        """A block of ``count`` floats or some more, one that was used before if there is any.

        Where there is none sizes have changed: as much as is now asked for is given back first, so
        that memory in use and idle memory together never exceed what was once in use.
        """
        with self._lock:
            sizes = [(block.numel(), -index) for index, (_, block) in enumerate(self._blocks)]
            fitting = [found for found in sizes if count <= found[0] <= _ROOM * count]
            if fitting:
                return self._blocks.pop(-min(fitting)[1])[1]  # of equal ones the warmest
            self._drop(count)
        return torch.empty(count, dtype=torch.float32)

    def put(self, block: Tensor) -> None:
        """Keep a block that nothing uses any more, within limits."""
        with self._lock:
            self._blocks.append((time.monotonic(), block))
            self._drop(self.floats - _most_idle())

    def forget(self, seconds: float = 0.0) -> None:
        """Give back all that has been idle for so long."""
        with self._lock:
            limit = time.monotonic() - seconds
            self._blocks = [(since, block) for since, block in self._blocks if since > limit]

    def _drop(self, count: int) -> None:
        """Give back at least ``count`` floats, if there are as many; the longest idle first."""
        while count > 0 and self._blocks:
            count -= self._blocks.pop(0)[1].numel()


idle = Idle()


def empty(shape: Sequence[int]) -> Tensor:
    """A new float32 tensor, not initialised; a large one lies in memory used before."""
    count = shape.numel() if isinstance(shape, torch.Size) else math.prod(shape)
    if count < LARGE:
        return torch.empty(shape, dtype=torch.float32)
    block = idle.take(count)
    lease = _lease_type(count).from_address(block.data_ptr())
    lease.block = block
    storage = torch.frombuffer(lease, dtype=torch.float32).untyped_storage()
    fresh = torch.empty(0, dtype=torch.float32)
    return fresh.set_(storage, 0, tuple(shape))  # type: ignore[call-overload]  # missing there


@lru_cache(maxsize=256)
def _lease_type(count: int) -> Any:
    """An array over a block that hands the block back when the last tensor on it has gone."""

    def hand_back(self: Any, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # then the names of this module are already gone
            idle.put(self.block)

    fields = {"_length_": count, "_type_": ctypes.c_float, "__del__": hand_back}
    return type("Lease", (ctypes.Array,), fields)


@lru_cache(maxsize=1)
def _most_idle() -> int:
    """An eighth of the machine's memory, in floats."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8 // 4
    except (ValueError, OSError, AttributeError):
        return 1 << 28


def _on_collection(
    phase: str, info: dict[str, int], ending: Callable[[], bool] = sys.is_finalizing
) -> None:
    """Python's own collection comes round now and then, whatever a program has turned to."""
    if phase == "stop" and info["generation"] == 2 and not ending():
        idle.forget(_IDLE_SECONDS)


gc.callbacks.append(_on_collection)
