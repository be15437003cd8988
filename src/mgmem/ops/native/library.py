"""The loaded kernels: plain functions on tensors, without gradients.

Every kernel takes the numbers of a call (shapes, mostly) and an array of the tensors' addresses.
ctypes lets other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mgmem.ops.native.build import BuildError, library_path

_log = logging.getLogger("mgmem.native")
_POSITIONS = 600
"""Samples of small grids are stacked until a plane has about so many positions."""

NO_MEMORY = "the native kernels found no memory for their scratch space"
RELU, RESET, ACTIVE, PEEPHOLE, SAVE = 1, 2, 4, 8, 16
Numbers: TypeAlias = "ctypes.Array[ctypes.c_int64]"
Shape = tuple[int, ...]


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL | None:
    """The library, or None and one line in the log where it can not be had."""
    try:
        library = ctypes.CDLL(str(library_path()))
        for name in ("conv_forward", "conv_backward", "lstm_forward", "lstm_backward"):
            function = getattr(library, f"mg_{name}")
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            function.restype = ctypes.c_int
        library.mg_program_new.argtypes = [ctypes.c_void_p]
        library.mg_program_new.restype = ctypes.c_void_p
        library.mg_program_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.mg_program_run.restype = ctypes.c_int
        library.mg_program_free.argtypes = [ctypes.c_void_p]
        library.mg_program_free.restype = None
        openmp = _loaded_openmp()
        if openmp is not None:
            library.mg_use_openmp(ctypes.cast(openmp.GOMP_parallel, ctypes.c_void_p))
    except (BuildError, OSError, AttributeError) as error:
        _log.warning("no native kernels, PyTorch computes instead: %s", error)
        return None
    return library


def _loaded_openmp() -> ctypes.CDLL | None:
    """The OpenMP library that PyTorch computes with, if this process has one that we know."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = {line.split()[-1] for line in lines if "libgomp" in line or "libiomp" in line}
    if len(paths) != 1:
        return None
    library = ctypes.CDLL(paths.pop())
    return library if hasattr(library, "GOMP_parallel") else None


def numbers(
    kernel: int,
    time: int,
    batch: int,
    lowest_in: int,
    inputs: Sequence[Shape],
    lowest_out: int,
    outputs: Sequence[Shape],
    threads: int,
    flags: int,
) -> Numbers:
    """A call in numbers; inputs and outputs are shapes (channels, *space), coarsest first."""
    dims = len(outputs[0]) - 1
    levels = [(s[0], *((1,) * (2 - dims)), *s[1:]) for s in (*inputs, *outputs)]
    values = [
        dims, kernel, time, batch, lowest_in, len(inputs), lowest_out, len(outputs), threads, flags,
        *(number for shape in levels for number in shape),
        *(group_size(batch, shape[1:], kernel) for shape in outputs),
    ]  # fmt: skip
    return (ctypes.c_int64 * len(values))(*values)


def group_size(batch: int, space: Shape, kernel: int) -> int:
    """How many samples are stacked in a plane; two threads always have work."""
    return max(1, min(-(-_POSITIONS // _sample_size(space, kernel)), -(-batch // 2)))


def saved_size(time: int, batch: int, shape: Shape, kernel: int, active: bool) -> int:
    """Floats that backward needs of one level of an LSTM layer, shape (channels, *space)."""
    group = group_size(batch, shape[1:], kernel)
    pad = kernel // 2
    behind = pad + (pad * (shape[-1] + pad) if len(shape) > 2 else 0)
    plane = -(-(group * _sample_size(shape[1:], kernel) - behind) // 16) * 16
    return -(-batch // group) * time * (6 if active else 5) * shape[0] * plane


def _sample_size(space: Shape, kernel: int) -> int:
    pad, size = kernel // 2, 1
    for side in space[:-1]:
        size *= side + pad
    return size * (space[-1] + pad)


def call(name: str, meta: Numbers, tensors: Sequence[Tensor | None]) -> None:
    """Run a kernel on contiguous tensors; None is a null pointer."""
    pointers = _pointers(len(tensors))(*[t if t is None else t.data_ptr() for t in tensors])
    if _function(name)(meta, pointers):
        raise MemoryError(NO_MEMORY)


@lru_cache(maxsize=1024)
def _pointers(count: int) -> type[ctypes.Array[ctypes.c_void_p]]:
    return ctypes.c_void_p * count


@lru_cache(maxsize=8)
def _function(name: str) -> Any:
    library = load()
    assert library is not None, "the native backend is not available"
    return getattr(library, f"mg_{name}")


# --- memory that is used again and again ---------------------------------------------------------
#
# Outputs and what backward needs are tens to hundreds of MB a layer. Fresh pages cost more time
# than the arithmetic that fills them, so blocks that PyTorch has let go serve the next update.

_idle: dict[int, list[Tensor]] = {}
_LARGE = 1 << 18
"""Floats from which on memory is kept."""


def empty(shape: Sequence[int]) -> Tensor:
    """A new float32 tensor, not initialised; a large one lies in memory used before."""
    count = shape.numel() if isinstance(shape, torch.Size) else math.prod(shape)
    if count < _LARGE:
        return torch.empty(shape, dtype=torch.float32)
    blocks = _idle.get(count)
    block = blocks.pop() if blocks else torch.empty(count, dtype=torch.float32)
    lease = _lease_type(count).from_address(block.data_ptr())
    lease.block = block
    storage = torch.frombuffer(lease, dtype=torch.float32).untyped_storage()
    return torch.empty(0, dtype=torch.float32).set_(storage, 0, tuple(shape))  # type: ignore[call-overload]


@lru_cache(maxsize=256)
def _lease_type(count: int) -> Any:
    """An array over a block that hands the block back when the last tensor on it has gone."""

    def hand_back(self: Any) -> None:
        if _idle is not None and sum(map(_floats, _idle.items())) + count <= _most_idle():
            _idle.setdefault(count, []).append(self.block)

    fields = {"_length_": count, "_type_": ctypes.c_float, "__del__": hand_back}
    return type("Lease", (ctypes.Array,), fields)


def _floats(item: tuple[int, list[Tensor]]) -> int:
    return item[0] * len(item[1])


@lru_cache(maxsize=1)
def _most_idle() -> int:
    """An eighth of the machine's memory, in floats."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8 // 4
    except (ValueError, OSError, AttributeError):
        return 1 << 28


def threads() -> int:
    """As many as PyTorch uses."""
    return torch.get_num_threads()
