"""Worlds: where walls are, how one moves through them, what one sees.

The one place for it: mapping, the exploration environment and every walker stand on this. Mazes
come side by side, and a cell is a single number that runs through all of them, so that moving and
looking are one lookup for the whole batch. A walk may be laid out beforehand (`motion.py`) or
decided as it goes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgmem.tasks.maze import Walls
from mgmem.tasks.seeds import Ints

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns that each of the four actions leads away: up, down, left, right."""


def free_start(size: int) -> int:
    """Row, and column, of the centre or the next cell down the diagonal: free in every maze."""
    return (size // 2) | 1


def pad_with_walls(walls: Walls, pad: int) -> Walls:
    """(B, n, n) -> (B, n + 2 pad, n + 2 pad): what lies outside the world is wall."""
    return np.pad(walls, ((0, 0), (pad, pad), (pad, pad)), constant_values=True)


def as_channels(walls: Walls) -> npt.NDArray[np.float32]:
    """What is seen, (..., m, m), as free, wall and two empty channels: (..., 4, m, m)."""
    channels = np.zeros((*walls.shape[:-2], 4, *walls.shape[-2:]), np.float32)
    channels[..., 0, :, :] = ~walls
    channels[..., 1, :, :] = walls
    return channels


class World:
    """B mazes with ``pad`` cells of wall around each, side by side.

    Cell (row, column) of maze b, as it was before padding, has the number
    b * side**2 + (row + pad) * side + column + pad.
    """

    def __init__(self, walls: Walls, pad: int = 0) -> None:
        """walls: (B, n, n), True for a wall."""
        self.pad = pad
        #: (B, side, side), padded; `replace` writes here.
        self.walls: Walls = np.ascontiguousarray(pad_with_walls(walls, pad))
        self.count, self.side, _ = self.walls.shape
        #: (B,) number of each maze's first cell.
        self.first_cells: Ints = np.arange(self.count) * self.side**2
        self._flat = self.walls.reshape(-1)
        self._offsets = np.array([row * self.side + column for row, column in MOVES])

    def replace(self, which: Ints, walls: Walls) -> None:
        """Put other mazes, (k, n, n), in the place of those numbered ``which`` (k,)."""
        inside = slice(self.pad, self.side - self.pad)
        self.walls[which, inside, inside] = walls

    def cells(self, row: npt.ArrayLike, column: npt.ArrayLike) -> Ints:
        """Numbers of the cells (row, column), each (..., B) or one for all: (..., B)."""
        inner = (np.asarray(row) + self.pad) * self.side + np.asarray(column) + self.pad
        return inner + self.first_cells

    def places(self, cells: Ints) -> Ints:
        """The inverse of ``cells``: (..., B) to rows and columns (..., B, 2)."""
        return np.stack(np.divmod(cells - self.first_cells, self.side), axis=-1) - self.pad

    def move(self, cells: Ints, actions: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Where actions (B,), from 0 to 3, lead from cells (B,), and whether a wall was hit.

        A wall leaves the agent where it is.
        """
        targets = cells + self._offsets[actions]
        bumped = self._flat[targets]
        return np.where(bumped, cells, targets), bumped

    def view(self, cells: Ints, size: int) -> Walls:
        """The size x size cells around each of (..., B): (..., B, size, size), True for a wall."""
        reach = np.arange(size) - size // 2
        around = reach[:, None] * self.side + reach
        return self._flat[cells[..., None, None] + around]

    def reachable(self, cells: Ints) -> Walls:
        """What can be walked to from cells (B,): (B, side, side) bool, those cells included."""
        free = ~self.walls
        reached = np.zeros_like(free)
        reached.reshape(-1)[cells] = True
        grown = spread(reached) & free
        while (grown != reached).any():
            reached, grown = grown, spread(grown) & free
        return reached


def spread(marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(..., n, n) marks and their four neighbours."""
    spread_out = marks.copy()
    spread_out[..., 1:, :] |= marks[..., :-1, :]
    spread_out[..., :-1, :] |= marks[..., 1:, :]
    spread_out[..., 1:] |= marks[..., :-1]
    spread_out[..., :-1] |= marks[..., 1:]
    return spread_out
