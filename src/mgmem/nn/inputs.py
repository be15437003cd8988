"""What a user may hand over, as the networks take it; what is not clear is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from mgmem.errors import UsageError
from mgmem.nn.state import LayerState, MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, grid_shape

Input: TypeAlias = "Tensor | np.ndarray[Any, Any] | Pyramid"
Flags: TypeAlias = "Tensor | np.ndarray[Any, Any] | Sequence[Any]"


def as_pyramid(x: Input, layer: LayerSpec, base: Sequence[int], like: Tensor) -> Pyramid:
    """An input as a pyramid, checked: (..., channels, *space) on each of the layer's levels.

    An array of floating-point numbers becomes a tensor of the dtype and on the device of ``like``.
    """
    if not isinstance(x, Pyramid):
        x = _as_tensor(x, like)
        if len(layer.levels) > 1:
            raise UsageError(
                f"the input has levels {layer.lowest} to {layer.highest}: give a Pyramid, "
                f"not one tensor of shape {tuple(x.shape)}"
            )
        x = Pyramid(layer.lowest, (x,))
    if x.levels != layer.levels:
        raise UsageError(
            f"the input pyramid has levels {list(x.levels)}, "
            f"this network was built for {list(layer.levels)}"
        )
    x = x.map(lambda grid: _as_tensor(grid, like))
    for level, grid in zip(x.levels, x, strict=True):
        expected = (layer.channels, *grid_shape(base, level))
        given = tuple(grid.shape[-len(expected) :])
        if given != expected:
            raise UsageError(
                f"input of shape {tuple(grid.shape)} at level {level}: its last dimensions are "
                f"{given}, this network was built for {expected} (channels, *space)"
            )
        _check_dtype(grid, like)
    return x


def _as_tensor(x: Any, like: Tensor) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray):
        # A copy: the array may be read-only, or run backwards.
        tensor = torch.tensor(np.ascontiguousarray(x))
        return tensor.to(like) if tensor.is_floating_point() else tensor.to(like.device)
    if isinstance(x, PackedSequence):
        raise UsageError(
            "a PackedSequence is taken by a memory, and by a reader together with what the memory "
            "gave; elsewhere give torch.nn.utils.rnn.pad_packed_sequence(x) and lengths"
        )
    raise UsageError(f"an input of type {type(x).__name__}: give a tensor, an array or a Pyramid")


def _check_dtype(grid: Tensor, weight: Tensor) -> None:
    """Raise unless an input has the dtype of the weights; under autocast any will do."""
    if grid.dtype != weight.dtype and not torch.is_autocast_enabled(grid.device.type):
        raise UsageError(
            f"input of dtype {grid.dtype}, weights of {weight.dtype}: convert one of them"
        )


def as_flags(reset: Flags, shape: tuple[int, ...], names: str, device: torch.device) -> Tensor:
    """A bool tensor of this shape, from a tensor, an array or nested lists of bools."""
    flags = torch.as_tensor(reset, device=device)
    if flags.dtype != torch.bool or flags.shape != shape:
        raise UsageError(
            f"reset is {flags.dtype} of shape {tuple(flags.shape)}; expected torch.bool of shape "
            f"{names} = {shape}"
        )
    return flags


def as_active(lengths: Flags, time: int, batch: int, device: torch.device) -> Tensor:
    """(time, batch) bool from (batch,) lengths."""
    lengths = torch.as_tensor(lengths)
    if lengths.shape != (batch,) or lengths.dtype == torch.bool or lengths.is_floating_point():
        raise UsageError(
            f"lengths is {lengths.dtype} of shape {tuple(lengths.shape)}; expected integers of "
            f"shape (batch,) = {(batch,)}"
        )
    if bool((lengths < 0).any()) or bool((lengths > time).any()):
        raise UsageError(f"lengths {lengths.tolist()}: each must be between 0 and time = {time}")
    return torch.arange(time, device=device)[:, None] < lengths.to(device)


def as_state(state: Any) -> MemoryState:
    """A state as a memory returned it, its layers, or (h, c) with one pyramid per layer in each."""
    if isinstance(state, MemoryState):
        return state
    if isinstance(state, tuple | list):
        if all(isinstance(layer, LayerState) for layer in state):
            return MemoryState(tuple(state))
        both = [[p] if isinstance(p, Pyramid) else p for p in state]
        if len(both) == 2 and all(map(_is_pyramids, both)) and len(both[0]) == len(both[1]):
            return MemoryState(tuple(LayerState(h, c) for h, c in zip(*both, strict=True)))
    raise UsageError(
        f"a state of type {type(state).__name__}: give the MemoryState that an earlier call "
        "returned, or None for an empty memory"
    )


def _is_pyramids(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(p, Pyramid) for p in value)


def as_queries(queries: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    """One tensor of queries is a list of one."""
    return [queries] if isinstance(queries, Tensor) else queries


def swapped(x: Any) -> Any:
    """(batch, time, ...) as (time, batch, ...) and back: a tensor, an array, a pyramid, flags."""
    if isinstance(x, Pyramid):
        return x.map(swapped)
    if x is None or isinstance(x, Tensor | np.ndarray):
        return None if x is None else x.swapaxes(0, 1)
    return torch.as_tensor(x).swapaxes(0, 1)


def unpacked(x: PackedSequence, lengths: Flags | None) -> tuple[Tensor, Tensor]:
    """(time, batch, channels, *space) and lengths, in the batch's own order."""
    if lengths is not None:
        raise UsageError("lengths with a PackedSequence, which has its own: leave them out")
    return pad_packed_sequence(x)


def packed_like(x: PackedSequence, grid: Tensor) -> PackedSequence:
    """(time, batch, ...) packed as ``x`` is."""
    if x.sorted_indices is not None:
        grid = grid.index_select(1, x.sorted_indices)
    there = torch.arange(grid.shape[1])[None] < x.batch_sizes[:, None]
    return x._replace(data=grid[there.to(grid.device)])
