"""Lists of tensors as the kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mgmem.ops.native import library

Maybe = Sequence[Tensor | None]


def dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same values, in memory one after another."""
    return [
        t if t.is_contiguous() and not t.is_neg() else t.contiguous().resolve_neg() for t in tensors
    ]


def new_tensors(shapes: Sequence[torch.Size], wanted: Sequence[bool]) -> list[Tensor | None]:
    """One of each shape that is wanted, not initialised; None for the others."""
    return [library.empty(s) if w else None for s, w in zip(shapes, wanted, strict=True)]


def reached_inputs(
    reached: Sequence[bool], inputs: int, lowest_in: int, lowest_out: int
) -> list[bool]:
    """Which levels below are read by a level of this layer that a gradient has reached."""
    read = {
        near
        for level, is_reached in enumerate(reached, lowest_out)
        if is_reached
        for near in (level - 1, level, level + 1)
    }
    return [level in read for level in range(lowest_in, lowest_in + inputs)]


def cut(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Consecutive parts of so many items each."""
    parts, start = [], 0
    for count in counts:
        parts.append(list(items[start : start + count]))
        start += count
    return parts


def filled(grads: Maybe, like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros for the outputs that nothing depends on."""
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True)]
