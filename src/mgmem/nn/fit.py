"""How a picture of any size becomes the input of a network on a pyramid of grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.pyramid import Pyramid, downsample
from mgmem.spec import LayerSpec, grid_shape

Fit = Literal["as is", "resize", "pad", "unshuffle"]
_FITS = get_args(Fit)


def fitted(x: Tensor, layer: LayerSpec, base: Sequence[int], how: Fit) -> Tensor | Pyramid:
    """(…, C, *space) pictures as the input ``layer`` of a network.

    - "as is": they have the grid's size already.
    - "resize": nearest-resized to the grid of every input level.
    - "pad": zero-padded to the finest input level, where each pixel keeps a cell of its own, and
      max-pooled to the coarser ones.
    - "unshuffle": each block of pixels under one cell of the input's only grid becomes channels
      of that cell, so nothing is lost.
    """
    if how not in _FITS:
        raise UsageError(f"fit {how!r}: give one of {', '.join(map(repr, _FITS))}")
    if how == "as is":
        return x
    leading, flat = x.shape[: -1 - len(base)], x.reshape(-1, *x.shape[-1 - len(base) :])
    if how == "unshuffle":
        return _unshuffled(flat, layer, base).unflatten(0, leading)
    if how == "resize":
        grids = [
            F.interpolate(flat, list(grid_shape(base, level)), mode="nearest")
            for level in layer.levels
        ]
    else:
        grids = _padded(flat, layer, base)
    return Pyramid(layer.lowest, tuple(grid.unflatten(0, leading) for grid in grids))


def _unshuffled(flat: Tensor, layer: LayerSpec, base: Sequence[int]) -> Tensor:
    grid = grid_shape(base, layer.lowest)
    factor = flat.shape[-1] // grid[-1]
    if len(base) != 2 or tuple(side * factor for side in grid) != tuple(flat.shape[-2:]):
        raise UsageError(
            f"a picture of {tuple(flat.shape[-len(base) :])} can not be unshuffled onto {grid}: "
            "both sides must be the same multiple"
        )
    rows, columns = grid
    # As F.pixel_unshuffle, which hands an empty batch back as it came.
    blocks = flat.reshape(*flat.shape[:2], rows, factor, columns, factor)
    return blocks.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def _padded(flat: Tensor, layer: LayerSpec, base: Sequence[int]) -> list[Tensor]:
    finest = grid_shape(base, layer.highest)
    missing = [grid - side for grid, side in zip(finest, flat.shape[-len(base) :], strict=True)]
    if any(gap < 0 for gap in missing):
        raise UsageError(
            f"a picture of {tuple(flat.shape[-len(base) :])} is larger than the grid {finest}"
        )
    before_after = [end for gap in reversed(missing) for end in (gap // 2, gap - gap // 2)]
    grids = [F.pad(flat, before_after)]
    while len(grids) < len(layer.levels):
        grids.insert(0, downsample(grids[0]))
    return grids
