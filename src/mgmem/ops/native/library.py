"""The loaded kernels: plain functions on tensors, without gradients.

Every kernel takes the numbers of a call (shapes, mostly) and an array of the tensors' addresses.
ctypes lets other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mgmem.ops.native.blocks import empty as empty
from mgmem.ops.native.build import library_path
from mgmem.ops.native.cache import BuildError

_log = logging.getLogger("mgmem.native")
_POSITIONS = 600
"""Samples of small grids are stacked until a plane has about so many positions."""
_WINOGRAD_POSITIONS = 2400
"""The same for grids that are convolved in tiles of 4x4."""

_NO_MEMORY = "the native kernels found no memory for their scratch space"
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
        parts(batch),
        *(number for shape in levels for number in shape),
        *(group_size(batch, shape[1:], kernel) for shape in outputs),
    ]  # fmt: skip
    return (ctypes.c_int64 * len(values))(*values)


def parts(batch: int) -> int:
    """Into how many parts the samples of a call are dealt: two at least, of eight or more each."""
    return max(1, min(batch, 2), batch // 8)


def group_size(batch: int, space: Shape, kernel: int) -> int:
    """How many samples are stacked in a plane, at most those of a part."""
    positions = _WINOGRAD_POSITIONS if _in_tiles(space, kernel) else _POSITIONS
    return max(1, min(-(-positions // _sample_size(space, kernel)), -(-batch // parts(batch))))


def _in_tiles(space: Shape, kernel: int) -> bool:
    """Whether a grid can be cut into the tiles of Winograd's convolution."""
    return kernel == 3 and len(space) == 2 and all(side % 4 == 0 for side in space)


def saved_size(time: int, batch: int, shape: Shape, kernel: int, active: bool) -> int:
    """Floats that backward needs of one level of an LSTM layer, shape (channels, *space)."""
    group = group_size(batch, shape[1:], kernel)
    pad = kernel // 2
    behind = pad + (pad * (shape[-1] + pad) if len(shape) > 2 else 0)
    plane = -(-(group * _sample_size(shape[1:], kernel) - behind) // 16) * 16
    in_part = -(-batch // parts(batch))
    groups = parts(batch) * -(-in_part // group)
    return groups * time * (6 if active else 5) * shape[0] * plane


def _sample_size(space: Shape, kernel: int) -> int:
    pad, size = kernel // 2, 1
    for side in space[:-1]:
        size *= side + pad
    return size * (space[-1] + pad)


class Infinite(Exception):
    """An input is infinite: only the reference has the right infinities and NaNs."""


def call(name: str, meta: Numbers, tensors: Sequence[Tensor | None]) -> None:
    """Run a kernel on contiguous tensors; None is a null pointer."""
    pointers = _pointers(len(tensors))(*[t if t is None else t.data_ptr() for t in tensors])
    check(_function(name)(meta, pointers))


def check(code: int | None) -> None:
    """Raise what a kernel's answer stands for; 0 is well."""
    if code == 2:
        raise Infinite
    if code != 0:
        raise MemoryError(_NO_MEMORY)


@lru_cache(maxsize=1024)
def _pointers(count: int) -> type[ctypes.Array[ctypes.c_void_p]]:
    return ctypes.c_void_p * count


@lru_cache(maxsize=8)
def _function(name: str) -> Any:
    library = load()
    assert library is not None, "the native backend is not available"
    return getattr(library, f"mg_{name}")


def threads() -> int:
    """As many as PyTorch uses."""
    return torch.get_num_threads()
