"""Where information can go: the cells that one cell's content can reach, layer by layer.

A grid on level j of a layer convolves levels j-1 (upsampled), j and j+1 (downsampled) of the layer
below. So content hops to coarser levels, travels there in large strides, and hops back: any cell
is a number of layers away that grows with the logarithm of the grid's side. On one level alone it
spreads by half a kernel per layer. This is arithmetic on the specification, within one time step;
weights decide which of the possible ways are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgmem.errors import UsageError
from mgmem.spec import MeshSpec, as_mesh, grid_shape

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Cell:
    """One place of a mesh: layers count from 1, levels and positions from 0."""

    layer: int
    level: int
    position: tuple[int, ...]


@dataclass(frozen=True)
class Reach:
    """What a source cell reaches; ``reach[layer][level]`` is a bool array of the grid's shape.

    It begins with the source's own layer, where the source alone is True.
    """

    spec: MeshSpec
    base: tuple[int, ...]
    source: Cell
    cross_scale: bool
    masks: Mapping[int, Mapping[int, Mask]]

    def __getitem__(self, layer: int) -> Mapping[int, Mask]:
        return self.masks[layer]

    @property
    def layers(self) -> range:
        """The layers from the source's to the last."""
        return range(self.source.layer, len(self.spec) + 1)

    def share(self, layer: int, level: int) -> float:
        """How much of a grid is reached, from 0 to 1."""
        return float(self.masks[layer][level].mean())


def reach(
    spec: str | MeshSpec,
    source: Cell,
    base: Sequence[int] = (3, 3),
    *,
    kernel: int = 3,
    cross_scale: bool = True,
) -> Reach:
    """The cells that the content of ``source`` can be routed to within one time step.

    Args:
        spec: the mesh, such as ``"0-3:1 0-3:1 0-3:1"``; channels do not matter.
        source: where the content is.
        base: sides of level 0.
        kernel: odd size of the convolutions.
        cross_scale: False: the same depth without links between levels, each a plain
            convolutional network.
    """
    mesh, base = as_mesh(spec), tuple(base)
    _check_source(mesh, source, base)
    grids = {j: np.zeros(grid_shape(base, j), bool) for j in mesh[source.layer - 1].levels}
    grids[source.level][source.position] = True
    masks = {source.layer: grids}
    for number in range(source.layer + 1, len(mesh) + 1):
        grids = {
            level: _dilated(_gathered(grids, level, base, cross_scale), kernel // 2)
            for level in mesh[number - 1].levels
        }
        masks[number] = grids
    return Reach(mesh, base, source, cross_scale, masks)


def proposition_1(layer: int, level: int) -> int:
    """The paper's bound: the side of the square that a corner reaches.

    The content of cell (1, 1) of [layer 1, level 1] reaches every cell (i, j) with i and j up to
    this number on [layer m, level n], m >= n, all counted from 1, kernel 3x3, every layer having
    all levels. It is no mere bound: exactly that square is reached, cut off at the grid's edge,
    and nothing where m < n.
    """
    return (layer - level + 2) * 2 ** (level - 1) - 1 if layer >= level else 0


def _check_source(mesh: MeshSpec, source: Cell, base: tuple[int, ...]) -> None:
    if not 1 <= source.layer <= len(mesh):
        raise UsageError(f"source layer {source.layer}: this mesh has layers 1 to {len(mesh)}")
    layer = mesh[source.layer - 1]
    if source.level not in layer.levels:
        raise UsageError(
            f"source level {source.level}: layer {source.layer} is {layer}, with levels "
            f"{layer.lowest} to {layer.highest}"
        )
    shape = grid_shape(base, source.level)
    inside = len(source.position) == len(shape) and all(
        0 <= place < side for place, side in zip(source.position, shape, strict=True)
    )
    if not inside:
        raise UsageError(
            f"source position {source.position}: level {source.level} is a grid of {shape}, "
            "positions count from 0"
        )


def _gathered(
    below: Mapping[int, Mask], level: int, base: tuple[int, ...], cross_scale: bool
) -> Mask:
    """What a grid on ``level`` holds before its convolution."""
    read = np.zeros(grid_shape(base, level), bool)
    if level in below:
        read |= below[level]
    if cross_scale and level - 1 in below:
        read |= _upsampled(below[level - 1])
    if cross_scale and level + 1 in below:
        read |= _downsampled(below[level + 1])
    return read


def _upsampled(mask: Mask) -> Mask:
    for axis in range(mask.ndim):
        mask = mask.repeat(2, axis)
    return mask


def _downsampled(mask: Mask) -> Mask:
    for axis in range(mask.ndim):
        first, second = (np.take(mask, range(k, mask.shape[axis], 2), axis) for k in (0, 1))
        mask = first | second
    return mask


def _dilated(mask: Mask, radius: int) -> Mask:
    """Every cell within ``radius`` of a True one along each axis."""
    for axis in range(mask.ndim):
        spread = mask.copy()
        for shift in range(1, min(radius, mask.shape[axis] - 1) + 1):
            ahead, behind = _halves(mask.ndim, axis, shift)
            spread[ahead] |= mask[behind]
            spread[behind] |= mask[ahead]
        mask = spread
    return mask


def _halves(dims: int, axis: int, shift: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Index of all but the first, and of all but the last, ``shift`` places along ``axis``."""
    whole = [slice(None)] * dims
    ahead, behind = list(whole), list(whole)
    ahead[axis], behind[axis] = slice(shift, None), slice(None, -shift)
    return tuple(ahead), tuple(behind)
