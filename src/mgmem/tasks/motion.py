"""How the agent moves through a maze, seen only by its walls.

A motion gives the agent's cell at every step of an episode, the first being where it starts.
An agent that decides as it goes (a policy) records its own cells instead and hands them to
`Mapping.follow`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from mgmem.tasks.maze import Walls
from mgmem.tasks.seeds import Ints, Keys, below, draw
from mgmem.tasks.world import MOVES, World, free_start


class Motion(Protocol):
    """A rule that moves the agent."""

    def start(self, size: int) -> int:
        """Row, and column, in which the agent starts in a maze of that size."""

    def default_length(self, size: int) -> int:
        """Steps of an episode when nobody says otherwise."""

    def longest(self, size: int) -> int | None:
        """The most steps an episode can have; None: no limit."""

    def path(self, keys: Keys, walls: Walls, steps: int) -> Ints:
        """Cells (row, column) of the agent: (steps, B, 2) for walls (B, n, n)."""


class Spiral:
    """Outward from the centre, through walls, until the whole interior has been covered."""

    def start(self, size: int) -> int:
        """The centre."""
        return size // 2

    def default_length(self, size: int) -> int:
        """Once over the whole interior."""
        return (size - 2) ** 2

    def longest(self, size: int) -> int | None:
        """Once over the whole interior."""
        return (size - 2) ** 2

    def path(self, keys: Keys, walls: Walls, steps: int) -> Ints:
        """The same for every maze: (steps, B, 2)."""
        cells = self.start(walls.shape[1]) + _spiral(walls.shape[1] - 2)[:steps]
        return np.broadcast_to(cells[:, None], (steps, len(walls), 2))


class Scattered(Spiral):
    """From the centre to all other cells in random order, however far apart.

    No agent moves like that; it is a lesson. Places that follow each other on a walk are
    neighbours, so that only the finest grid can tell them apart; scattered ones any grid can.
    """

    def path(self, keys: Keys, walls: Walls, steps: int) -> Ints:
        """(steps, B, 2)."""
        side = walls.shape[1] - 2
        lots = draw(keys, "scattered", np.arange(side * side)[:, None])
        lots[side * side // 2] = 0
        order = lots.argsort(axis=0, kind="stable")[:steps]
        return np.stack(np.divmod(order, side), axis=2) + 1


class RandomWalk:
    """A uniformly random one of four moves per step; a wall leaves the agent where it is."""

    def start(self, size: int) -> int:
        """The centre, or the next cell down the diagonal, which is free in every maze."""
        return free_start(size)

    def default_length(self, size: int) -> int:
        """As the shorter of the paper's random walks."""
        return 500

    def longest(self, size: int) -> int | None:
        """It never has to end."""
        return None

    def path(self, keys: Keys, walls: Walls, steps: int) -> Ints:
        """(steps, B, 2)."""
        world, start = World(walls), self.start(walls.shape[1])
        moves = below(draw(keys, "random walk", np.arange(steps - 1)[:, None]), 4)
        cells = np.empty((steps, len(walls)), np.int64)
        cells[0] = world.cells(start, start)
        for step, actions in enumerate(moves):
            cells[step + 1], _ = world.move(cells[step], actions)
        return world.places(cells)


class CuriousWalk(RandomWalk):
    """A step to where it has been least often, drawn among such; no wall is walked into.

    It sees much more of a world than a random walk, about as much as an agent that explores.
    """

    def path(self, keys: Keys, walls: Walls, steps: int) -> Ints:
        """(steps, B, 2)."""
        world, start = World(walls), self.start(walls.shape[1])
        draws = draw(keys, "curious walk", np.arange(steps - 1)[:, None])
        cells = np.empty((steps, len(walls)), np.int64)
        cells[0] = world.cells(start, start)
        visits = np.zeros(world.walls.size, np.int64)
        moves, every = np.arange(len(MOVES))[:, None], np.arange(len(walls))
        for step, bits in enumerate(draws):
            visits[cells[step]] += 1
            ahead, bumped = world.move(cells[step], moves)  # (4, B)
            often = visits[ahead] + steps * bumped
            wanted = often == often.min(axis=0)
            # The k-th of the wanted moves, k being drawn among them.
            turn = below(bits, wanted.sum(axis=0))
            cells[step + 1] = ahead[(wanted.cumsum(axis=0) > turn).argmax(axis=0), every]
        return world.places(cells)


MotionName = Literal["spiral", "scattered", "random", "curious"]
MOTIONS: dict[MotionName, Motion] = {
    "spiral": Spiral(),
    "scattered": Scattered(),
    "random": RandomWalk(),
    "curious": CuriousWalk(),
}


@lru_cache(maxsize=16)
def _spiral(side: int) -> Ints:
    """Offsets from the centre that wind once over a square with an odd side: (side**2, 2)."""
    turns = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
    # Straight runs of 1, 1, 2, 2, 3, 3, ... cells; the last one closes the square.
    runs = [1 + run // 2 for run in range(2 * (side - 1))] + [side - 1]
    moves = np.concatenate([turns[[run % 4] * length] for run, length in enumerate(runs)])
    return np.concatenate([np.zeros((1, 2), np.int64), moves.cumsum(axis=0)])
