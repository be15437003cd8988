"""Lists of tensors as the kernels' operators handle them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from mgmem.ops.native import library

Maybe = Sequence[Tensor | None]


def dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same values, contiguous."""
    return [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]


def new_tensor(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Not initialised; a fake one while tracing."""
    return like.new_empty(shape) if isinstance(like, FakeTensor) else library.empty(shape)


def new_tensors(tensors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """One like each tensor that is wanted, None for the others."""
    return [new_tensor(t, t.shape) if w else None for t, w in zip(tensors, wanted, strict=True)]


def zero_unread(results: Maybe, inputs: int, lowest_in: int, lowest_out: int, outputs: int) -> None:
    """Levels that no level of this layer reads are not touched by the kernels."""
    for level, grad in enumerate(results[:inputs], lowest_in):
        if grad is not None and not lowest_out - 1 <= level <= lowest_out + outputs:
            grad.zero_()


def cut(items: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Consecutive parts of so many items each."""
    parts, start = [], 0
    for count in counts:
        parts.append(list(items[start : start + count]))
        start += count
    return parts


def deal(found: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """What was found to those who wanted it, None to the others."""
    supply = iter(found)
    return [next(supply) if w else None for w in wanted]


def filled(grads: Maybe, like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros for the outputs that nothing depends on."""
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True)]
