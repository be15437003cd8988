"""What an agent has seen of its world, and which k x k windows of it look alike.

Cells are numbered in a padded world, with enough walls around the maze for every window to lie
within. Everything is decided from the time at which a cell was first observed, never from the
hidden map.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgmem.tasks.maze import Walls
from mgmem.tasks.seeds import Bits, Ints, below

Times = npt.NDArray[np.int32]

NEVER = np.int32(2**31 - 1)

_WORD_BITS = 62
_FINE = 2**32


def first_observed(cells: Ints, side: int, view: int) -> Times:
    """When each cell of a world first came into view, NEVER if it did not: (B, side, side).

    cells: (T, B), the agent's cell, numbered row * side + column; it sees view x view cells.
    """
    steps, count = cells.shape
    visited = np.full((count, side * side), NEVER, np.int32)
    moments = np.broadcast_to(np.arange(steps, dtype=np.int32)[:, None], cells.shape)
    np.minimum.at(visited, (np.arange(count), cells), moments)
    return _spread(visited.reshape(count, side, side), view, np.minimum)


class Windows:
    """The size x size windows centred on the interior cells of worlds, and when they were seen.

    The interior is the maze without its border: s x s cells, numbered row * s + column. An agent
    never leaves it and sees no more than a window, so windows centred elsewhere stay incomplete.
    """

    def __init__(self, walls: Walls, observed: Times, size: int, pad: int) -> None:
        """walls, observed: (B, side, side), padded by `pad` around the maze."""
        count, side, _ = walls.shape
        inside = slice(pad + 1, side - pad - 1)

        def interior(grid: npt.NDArray) -> npt.NDArray:
            return np.ascontiguousarray(grid[:, inside, inside].reshape(count, -1))

        #: (B, s * s): the moment at which the last cell of a window was seen.
        self.complete: Times = interior(_spread(observed, size, np.maximum))
        self._order = self.complete.argsort(axis=1, kind="stable")
        self._words = [interior(word) for word in _window_words(walls, size)]
        self._shares: npt.NDArray[np.float64] | None = None

    def draw(self, bits: Bits, times: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """A uniformly random complete window per query: (Q, B) number, (Q, B) whether any was.

        bits: (Q, B) random bits; times: (Q,) moments.
        """
        known = self._known(times)
        rank = below(bits, np.maximum(known, 1))
        return self._order[np.arange(len(self._order)), rank], known > 0

    def draw_looks(self, bits: Bits, times: Ints) -> Ints:
        """As ``draw``, but all looks about equally likely instead of all windows: (Q, B) number.

        A window's chance is one over the number of windows that ever look like it, so that the
        look without walls, which most windows share, is asked for hardly more than others.
        """
        if self._shares is None:
            numbers = np.broadcast_to(np.arange(self.complete.shape[1]), self.complete.shape)
            last = np.full(numbers.shape[1], NEVER - 1)
            alike = self.matches(numbers.T, last).sum(axis=2).T
            chances = np.take_along_axis(1 / np.maximum(alike, 1), self._order, axis=1)
            self._shares = chances.cumsum(axis=1)
        known = self._known(times)
        rows = np.arange(len(self._order))
        reached = self._shares[rows, np.maximum(known, 1) - 1]
        aim = below(bits, _FINE) / _FINE * reached
        rank = (self._shares <= aim[:, :, None]).sum(axis=2)
        return self._order[rows, np.minimum(rank, np.maximum(known, 1) - 1)]

    def _known(self, times: Ints) -> Ints:
        """How many windows are complete by ``times`` (Q,): (Q, B)."""
        return (self.complete <= times[:, None, None]).sum(axis=2)

    def matches(self, chosen: Ints, times: Ints) -> npt.NDArray[np.bool_]:
        """Windows complete by `times` (Q,) that look like the chosen ones (Q, B): (Q, B, s * s)."""
        same = self.complete <= times[:, None, None]
        rows = np.arange(same.shape[1])
        for word in self._words:
            same &= word == word[rows, chosen][:, :, None]
        return same


def _spread(grid: Times, size: int, pick: np.ufunc) -> Times:
    """Minimum or maximum over the size x size window around each cell; (B, side, side).

    Cells beyond the edge do not take part; no window that is used reaches there.
    """
    for axis in (1, 2):
        result = grid.copy()
        for shift in range(1, size // 2 + 1):
            ahead = (slice(None),) * axis + (slice(shift, None),)
            behind = (slice(None),) * axis + (slice(None, -shift),)
            pick(result[behind], grid[ahead], out=result[behind])
            pick(result[ahead], grid[behind], out=result[ahead])
        grid = result
    return grid


def _window_words(walls: Walls, size: int) -> list[Ints]:
    """The size * size bits around every cell as exact integers, one or more words each.

    Words have the shape of walls. Cells within size // 2 of the edge hold no meaningful number.
    """
    half = size // 2
    row = np.zeros(walls.shape, np.int64)
    for column in range(-half, half + 1):
        row = 2 * row + np.roll(walls, -column, axis=2)
    words = []
    rows_per_word = _WORD_BITS // size
    for first in range(-half, half + 1, rows_per_word):
        word = np.zeros(walls.shape, np.int64)
        for offset in range(first, min(first + rows_per_word, half + 1)):
            word = (word << size) + np.roll(row, -offset, axis=1)
        words.append(word)
    return words
