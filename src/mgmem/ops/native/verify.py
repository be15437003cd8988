"""Whether the kernels take a call, and why not. Nothing else decides it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mgmem.ops.circumstances import transformed, watched
from mgmem.ops.native import library

_PLAIN = (Tensor, nn.Parameter)


def refusal(tensors: Sequence[Tensor], flags: Sequence[Tensor | None] = ()) -> str | None:
    """Why a call with these tensors is computed otherwise; None: the kernels take it.

    ``flags`` are bool; None where there is none.
    """
    why = transformed() or watched()
    if why is None and not all(map(readable, tensors)):
        why = next(_why_not(tensor) for tensor in tensors if not readable(tensor))
    for flag in flags:
        if why is None and flag is not None and not readable(flag, torch.bool):
            why = _why_not(flag)
    if why is None and library.load() is None:
        why = "no compiled kernels here"
    return why


def readable(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether its numbers lie in memory as the kernels read them, but for the strides."""
    return (
        tensor.dtype is dtype
        and tensor.is_cpu
        and type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def _why_not(tensor: Tensor) -> str:
    if type(tensor) not in _PLAIN:
        return f"a tensor of class {type(tensor).__name__}"
    if tensor.is_neg():
        return "a tensor with the negative bit"
    return f"a tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}"
