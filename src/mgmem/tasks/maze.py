"""Mazes: a border of walls and, inside, walls grown from random seeds."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.tasks.seeds import Ints, Keys, below, draw

Walls = npt.NDArray[np.bool_]

COMPLEXITY = 0.05
DENSITY = 0.2

# A cell has 2, 3 or 4 neighbours; 12 is a multiple of each, so that a uniform number below 12
# taken modulo their number is a uniform choice.
_CHOICES = 12


def make_mazes(
    keys: Keys, size: int, complexity: float = COMPLEXITY, density: float = DENSITY
) -> Walls:
    """One maze per key: (B, size, size) bool, True for a wall.

    int(density * (size // 2)**2) seeds fall on cells with even coordinates, the border
    included. From each, int(complexity * 10 * size) times, a random cell two steps away is
    looked at: if it is free, it and the cell between become walls and the growth goes on from
    there. Cells with two odd coordinates always stay free.
    """
    if size < 5 or size % 2 == 0:
        raise UsageError(f"a maze of size {size} was asked for: give an odd size of at least 5")
    count = len(keys)
    walls = np.zeros((count, size, size), np.bool_)
    walls[:, (0, -1), :] = True
    walls[:, :, (0, -1)] = True
    seeds = int(density * (size // 2) ** 2)
    tries = int(complexity * 10 * size)
    cells = _seed_cells(keys, seeds, size)
    choices = below(draw(keys, "maze growth", np.arange(seeds * tries)[:, None]), _CHOICES)

    flat = walls.reshape(-1)
    maze = np.arange(count) * size**2
    neighbours = _neighbours(size)
    for cell, choice in zip(cells, choices.reshape(seeds, tries, count), strict=True):
        flat[maze + cell] = True
        for pick in choice:
            target = neighbours[cell * _CHOICES + pick]
            free = ~flat[maze + target]
            flat[maze + target] = True
            flat[maze + (cell + target) // 2] |= free
            cell = np.where(free, target, cell)
    return walls


def _seed_cells(keys: Keys, seeds: int, size: int) -> Ints:
    """Where walls start to grow: (seeds, B) indices of cells with even coordinates."""
    coordinates = 2 * below(draw(keys, "maze seeds", np.arange(2 * seeds)[:, None]), size // 2 + 1)
    return coordinates[:seeds] * size + coordinates[seeds:]


@lru_cache(maxsize=16)
def _neighbours(size: int) -> Ints:
    """(size * size * 12,): the cell that number r leads to from cell c, at 12 * c + r."""
    table = np.zeros((size, size, _CHOICES), np.int64)
    for row in range(0, size, 2):
        for column in range(0, size, 2):
            around = [(row - 2, column), (row + 2, column), (row, column - 2), (row, column + 2)]
            inside = [r * size + c for r, c in around if 0 <= r < size and 0 <= c < size]
            table[row, column] = np.resize(inside, _CHOICES)
    return table.reshape(-1)
