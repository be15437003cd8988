"""The type that flows through everything: one tensor per level, and the moves between levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.serialization import add_safe_globals
from torch.utils._pytree import SequenceKey, register_pytree_node


@dataclass(frozen=True, repr=False, eq=False)
class Pyramid:
    """Grids on levels ``lowest``, ``lowest + 1``, ...; ``pyramid[level]`` is one of them.

    Each grid has shape (..., channels, *space), space doubling from level to level. The leading
    dimensions are the same on all levels: (batch,) or (time, batch). Negative levels count from
    the finest: ``pyramid[-1]``. A pytree, so ``torch.func``, ``torch.export`` and ``tree_map``
    see its grids.
    """

    lowest: int
    grids: tuple[Tensor, ...]

    @property
    def levels(self) -> range:
        """The levels that exist, coarsest first."""
        return range(self.lowest, self.lowest + len(self.grids))

    @property
    def finest(self) -> Tensor:
        """The grid on the highest level."""
        return self.grids[-1]

    def __getitem__(self, level: int) -> Tensor:
        if -len(self.grids) <= level < 0:
            return self.grids[level]
        if level not in self.levels:
            raise KeyError(f"no level {level}; this pyramid has levels {list(self.levels)}")
        return self.grids[level - self.lowest]

    def get(self, level: int) -> Tensor | None:
        """The grid on ``level``, or None where there is none."""
        return self.grids[level - self.lowest] if level in self.levels else None

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.grids)

    def __len__(self) -> int:
        return len(self.grids)

    def __eq__(self, other: object) -> bool:
        """Whether levels, shapes, dtypes and all numbers are the same."""
        if not isinstance(other, Pyramid):
            return NotImplemented
        return self.levels == other.levels and all(map(_equal, self.grids, other.grids))

    __hash__ = None  # type: ignore[assignment]  # what is equal by its numbers has no fixed hash

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{level}: {tuple(grid.shape) if isinstance(grid, Tensor) else type(grid).__name__}"
            for level, grid in zip(self.levels, self.grids, strict=True)
        )
        return f"Pyramid({shapes})"

    def map(self, function: Callable[[Tensor], Any]) -> Pyramid:
        """Apply ``function`` to every grid."""
        return Pyramid(self.lowest, tuple(function(grid) for grid in self.grids))

    def detach(self) -> Pyramid:
        """The same values, cut from the graph."""
        return self.map(Tensor.detach)

    def clone(self) -> Pyramid:
        """A copy."""
        return self.map(Tensor.clone)

    def to(self, *args: Any, **kwargs: Any) -> Pyramid:
        """Move or cast every grid, as ``Tensor.to``."""
        return self.map(lambda grid: grid.to(*args, **kwargs))

    def cpu(self) -> Pyramid:
        """The same values in the CPU's memory."""
        return self.map(Tensor.cpu)

    def join(self, other: Pyramid, spatial: int) -> Pyramid:
        """Concatenate the channels of two pyramids with the same levels; ``spatial`` dimensions."""
        if self.levels != other.levels:
            raise ValueError(f"levels {list(self.levels)} and {list(other.levels)} do not match")
        dim = -1 - spatial
        pairs = zip(self.grids, other.grids, strict=True)
        return Pyramid(self.lowest, tuple(torch.cat(pair, dim) for pair in pairs))


def _equal(one: Tensor, other: Tensor) -> bool:
    alike = one.dtype == other.dtype and one.device == other.device and one.shape == other.shape
    return alike and torch.equal(one, other)


add_safe_globals([Pyramid])
register_pytree_node(
    Pyramid,
    lambda pyramid: (list(pyramid.grids), pyramid.lowest),
    lambda grids, lowest: Pyramid(lowest, tuple(grids)),
    serialized_type_name="mgmem.Pyramid",
    flatten_with_keys_fn=lambda pyramid: (
        [(SequenceKey(index), grid) for index, grid in enumerate(pyramid.grids)],
        pyramid.lowest,
    ),
)


def upsample(grid: Tensor) -> Tensor:
    """Nearest x2: (N, C, *space) to (N, C, *2·space)."""
    return F.interpolate(grid, scale_factor=2.0, mode="nearest")


def downsample(grid: Tensor) -> Tensor:
    """Max pooling by 2: (N, C, *space) to (N, C, *space/2)."""
    return F.max_pool1d(grid, 2) if grid.dim() == 3 else F.max_pool2d(grid, 2)


def gather(pyramid: Pyramid, level: int) -> Tensor:
    """What a grid on ``level`` of the next layer reads: level-1 up, level, level+1 down.

    The grids of ``pyramid`` are (N, C, *space); whichever of the three exist are concatenated.
    """
    below, same, above = (pyramid.get(j) for j in (level - 1, level, level + 1))
    parts = [
        *([upsample(below)] if below is not None else []),
        *([same] if same is not None else []),
        *([downsample(above)] if above is not None else []),
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
