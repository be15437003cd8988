"""How it is computed, and the one place that picks the way.

Three ways give one result: ``reference`` (the equations, step by step), ``scan`` (layer-major
PyTorch, every device and dtype) and ``native`` (compiled kernels, float32 on CPU). ``auto``, the
default, takes native where it can and scan elsewhere. ``MGMEM_BACKEND`` sets the default.

Before any of them sees a tensor, all of them are checked against each other. Whether native takes
a call is decided by ``native.verify``; inside ``torch.func`` transforms, forward-mode
differentiation and exporters it is always the reference, since they trace plain PyTorch only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.ops import native, reference, scan
from mgmem.ops.checks import check_alike, check_conv, check_lstm
from mgmem.ops.circumstances import transformed
from mgmem.ops.native import verify
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
_log = logging.getLogger("mgmem.ops")
_default: str | None = None
_inside: ContextVar[str | None] = ContextVar("mgmem.backend", default=None)
"""The choice of the innermost ``with backend(...)``; each thread and each task has its own."""


def set_backend(name: str) -> None:
    """Compute with this backend from now on: auto, native, scan or reference."""
    global _default
    _default = _checked(name)


def chosen_backend() -> str:
    """The name given to the innermost ``backend`` block, or last to ``set_backend``.

    Before any was given: what ``MGMEM_BACKEND`` says, looked at here and not on import, which
    should neither compile nor fail.
    """
    chosen = _inside.get() or _default
    if chosen is None:
        chosen = os.environ.get("MGMEM_BACKEND") or "auto"
        set_backend(chosen)
    return chosen


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Compute with this backend inside the ``with`` block, in this thread or task only."""
    before = _inside.set(_checked(name))
    try:
        yield
    finally:
        _inside.reset(before)


def _checked(name: str) -> str:
    if name not in BACKENDS:
        raise UsageError(f"no backend {name!r}; there are {', '.join(BACKENDS)}")
    if name == "native" and not native.available():
        raise UsageError("the native backend is not available here; 'scan' always works")
    return name


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv; see ``reference.conv_layer``."""
    if torch.compiler.is_compiling():
        return reference.conv_layer(inputs, weights, biases, lowest, relu)
    check_conv(inputs, weights, biases, lowest)
    way = _pick([*inputs.grids, *weights, *biases])
    return way.conv_layer(inputs, weights, biases, lowest, relu)


def lstm_layer(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Pyramid, Pyramid, Pyramid]:
    """MG-conv-LSTM over a sequence; see ``reference.lstm_layer``."""
    if torch.compiler.is_compiling():
        return reference.lstm_layer(inputs, hidden, cell, weights, reset, active)
    check_lstm(inputs, hidden, cell, weights, reset, active)
    groups = (inputs.grids, hidden.grids, cell.grids, *weights[:3], weights.peephole or ())
    way = _pick([tensor for group in groups for tensor in group], reset, active)
    return way.lstm_layer(inputs, hidden, cell, weights, reset, active)


def picks_native(tensors: Sequence[Tensor]) -> bool:
    """Whether a layer that is given these tensors is computed by the native kernels."""
    return (
        chosen_backend() in ("auto", "native")
        and not torch.compiler.is_compiling()
        and verify.refusal(tensors) is None
    )


def _pick(tensors: Sequence[Tensor], *flags: Tensor | None) -> ModuleType:
    """The module that computes this call."""
    chosen = chosen_backend()
    if chosen in ("auto", "native"):
        why = verify.refusal(tensors, flags)
        if why is None:
            return native
        _log.debug("not computed by the native kernels: %s", why)
    check_alike(tensors, flags)
    plain = chosen == "reference" or transformed() is not None or tensors[0].is_meta
    return reference if plain else scan
