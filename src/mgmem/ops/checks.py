"""What the tensors of a layer must satisfy, whichever way it is computed.

Shapes are looked at once for each combination of them. What does not fit is a ``UsageError`` that
names the tensor, its shape and the one expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

Shapes = tuple[torch.Size, ...]


def check_conv(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int
) -> None:
    """Raise unless these are the shapes of an MG-conv layer."""
    groups = (_shapes(group) for group in (inputs.grids, weights, biases))
    check_conv_shapes(inputs.lowest, lowest, *groups)


def check_lstm(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None,
    active: Tensor | None,
) -> None:
    """Raise unless these are the shapes of an MG-conv-LSTM layer, and the flags are bool."""
    if hidden.lowest != cell.lowest:
        raise UsageError(f"h begins on level {hidden.lowest} and c on level {cell.lowest}")
    flags = {"reset": reset, "active": active}
    for name, flag in flags.items():
        if flag is not None and flag.dtype is not torch.bool:
            raise UsageError(f"{name} is {flag.dtype}; expected torch.bool")
    check_lstm_shapes(
        inputs.lowest,
        hidden.lowest,
        *(_shapes(group) for group in (inputs.grids, hidden.grids, cell.grids, *weights[:3])),
        None if weights.peephole is None else _shapes(weights.peephole),
        tuple((name, flag.shape) for name, flag in flags.items() if flag is not None),
    )


def check_alike(tensors: Sequence[Tensor], flags: Sequence[Tensor | None] = ()) -> None:
    """Raise unless all are on one device and, but for the flags and autocast, of one dtype."""
    given = [flag for flag in flags if flag is not None]
    devices = sorted({str(tensor.device) for tensor in (*tensors, *given)})
    if len(devices) > 1:
        raise UsageError(
            f"a layer with tensors on {' and '.join(devices)}: move inputs, state and weights to "
            "one device"
        )
    dtypes = sorted({str(tensor.dtype) for tensor in tensors})
    if len(dtypes) > 1 and not torch.is_autocast_enabled(devices[0].split(":")[0]):
        raise UsageError(
            f"a layer with tensors of {' and '.join(dtypes)}: convert inputs, state and weights "
            "to one dtype"
        )


def _shapes(tensors: Iterable[Tensor]) -> Shapes:
    return tuple([tensor.shape for tensor in tensors])


@lru_cache(maxsize=4096)
def check_conv_shapes(
    lowest_in: int, lowest_out: int, inputs: Shapes, weights: Shapes, biases: Shapes
) -> None:
    """``check_conv`` for shapes alone."""
    dims = _dimensions(weights, "weight")
    _count("bias", biases, weights)
    _check_pyramid(inputs, lowest_in, 1, dims)
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        level = lowest_out + index
        read = _channels_read(inputs, lowest_in, level, 1)
        kernel = weights[0][2:]
        _expect("weight", level, weight, (weight[0], read, *kernel))
        _expect("bias", level, bias, (weight[0],))


@lru_cache(maxsize=4096)
def check_lstm_shapes(
    lowest_in: int,
    lowest_out: int,
    inputs: Shapes,
    hidden: Shapes,
    cell: Shapes,
    input_weights: Shapes,
    recurrent: Shapes,
    biases: Shapes,
    peepholes: Shapes | None = None,
    flags: tuple[tuple[str, torch.Size], ...] = (),
) -> None:
    """``check_lstm`` for shapes alone; flags with their names."""
    dims = _dimensions(input_weights, "input weight")
    groups = {"c": cell, "input weight": input_weights, "recurrent weight": recurrent}
    groups |= {"bias": biases} | ({"peephole": peepholes} if peepholes is not None else {})
    for name, group in groups.items():
        _count(name, group, hidden)
    _check_pyramid(inputs, lowest_in, 2, dims)
    leading, channels, kernel = inputs[0][:2], hidden[0][1:2].numel(), input_weights[0][2:]
    for name, shape in flags:
        if shape != leading:
            raise UsageError(
                f"{name} is of shape {tuple(shape)}; expected (time, batch) = {tuple(leading)}"
            )
    for index, level in enumerate(range(lowest_out, lowest_out + len(hidden))):
        space = _space(inputs[0][3:], level - lowest_in)
        read = _channels_read(inputs, lowest_in, level, 2)
        for name, shape in (("h", hidden[index]), ("c", cell[index])):
            _expect(name, level, shape, (leading[1], channels, *space))
        _expect("input weight", level, input_weights[index], (4 * channels, read, *kernel))
        _expect("recurrent weight", level, recurrent[index], (4 * channels, channels, *kernel))
        _expect("bias", level, biases[index], (4 * channels,))
        if peepholes is not None and peepholes[index] != (3, channels, *[1] * dims):
            _expect("peephole", level, peepholes[index], (3, channels, *space))


def _dimensions(weights: Shapes, name: str) -> int:
    """1 or 2, from the first weight, whose kernel is odd and the same along all of them."""
    shape = tuple(weights[0]) if weights else ()
    kernel = shape[2:]
    if len(kernel) not in (1, 2) or len(set(kernel)) != 1 or kernel[-1] % 2 == 0:
        raise UsageError(f"{name} is {shape}; expected (channels, channels read, *odd kernel)")
    return len(kernel)


def _count(name: str, group: Shapes, like: Shapes) -> None:
    if len(group) != len(like):
        raise UsageError(f"{len(like)} levels and {len(group)} of {name}: give one for each level")


def _check_pyramid(inputs: Shapes, lowest: int, leading: int, dims: int) -> None:
    """One leading shape, and sides that double from level to level."""
    for index, shape in enumerate(inputs):
        first = inputs[0]
        if len(shape) != leading + 1 + dims:
            raise UsageError(
                f"input of shape {tuple(shape)} at level {lowest + index}: expected "
                f"{leading + 1 + dims} dimensions"
            )
        expected = (*first[:leading], shape[leading], *_space(first[leading + 1 :], index))
        _expect("input", lowest + index, shape, expected)


def _space(base: Sequence[int], level: int) -> tuple[int, ...]:
    """Sides ``level`` levels above those of ``base``, or below."""
    return tuple(side << level if level >= 0 else side >> -level for side in base)


def _channels_read(inputs: Shapes, lowest: int, level: int, leading: int) -> int:
    near = range(max(level - 1, lowest), min(level + 1, lowest + len(inputs) - 1) + 1)
    if not near:
        raise UsageError(
            f"level {level} reads nothing: the input has levels {lowest} to "
            f"{lowest + len(inputs) - 1}"
        )
    return sum(inputs[j - lowest][leading] for j in near)


def _expect(name: str, level: int, shape: torch.Size, expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise UsageError(f"{name} at level {level} is {tuple(shape)}; expected {expected}")
