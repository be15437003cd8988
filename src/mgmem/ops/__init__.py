"""How it is computed, and the one place that picks the way.

Three ways give one result: ``reference`` (the equations, step by step), ``scan`` (layer-major
PyTorch, every device and dtype) and ``native`` (compiled kernels, float32 on CPU). ``auto``, the
default, takes native where it can and scan elsewhere. ``MGMEM_BACKEND`` sets the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.ops import native, reference, scan
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

__all__ = [
    "BACKENDS",
    "LSTMWeights",
    "backend",
    "chosen_backend",
    "conv_layer",
    "lstm_layer",
    "picks_native",
    "set_backend",
]

BACKENDS = ("auto", "native", "scan", "reference")
_chosen = "auto"


def set_backend(name: str) -> None:
    """Compute with this backend from now on: auto, native, scan or reference."""
    global _chosen
    if name not in BACKENDS:
        raise UsageError(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    if name == "native" and not native.available():
        raise UsageError("the native backend is not available here; 'scan' always works")
    _chosen = name


def chosen_backend() -> str:
    """The name last given to ``set_backend``, or the default."""
    return _chosen


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Compute with this backend inside the ``with`` block."""
    before = _chosen
    set_backend(name)
    try:
        yield
    finally:
        set_backend(before)


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv; see ``reference.conv_layer``."""
    return _pick(inputs).conv_layer(inputs, weights, biases, lowest, relu)


def lstm_layer(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Pyramid, Pyramid, Pyramid]:
    """MG-conv-LSTM over a sequence; see ``reference.lstm_layer``."""
    return _pick(inputs).lstm_layer(inputs, hidden, cell, weights, reset, active)


def picks_native(inputs: Pyramid) -> bool:
    """Whether a layer that is given these grids is computed by the native kernels."""
    return _pick(inputs) is native


def _pick(inputs: Pyramid) -> ModuleType:
    """The module that computes this call."""
    if _chosen == "reference":
        return reference
    if _chosen == "scan" or not _native_fits(inputs.grids[0]):
        return _traceable()
    return native


def _native_fits(grid: Tensor) -> bool:
    return (
        grid.dtype == torch.float32
        and grid.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and native.available()
    )


def _traceable() -> ModuleType:
    """Exporters trace plain PyTorch only, so for them the equations themselves are run."""
    return reference if torch.compiler.is_compiling() else scan


set_backend(os.environ.get("MGMEM_BACKEND", "auto"))
