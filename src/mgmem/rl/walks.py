"""Walks through mazes, decided as they go: the rules that every exploration environment shares.

An agent starts in the middle of a maze that it does not know. Reward 1 for entering a cell never
visited before, -1 for walking into a wall (it stays where it is), 0 otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.tasks.maze import Walls, make_mazes
from mgmem.tasks.seeds import Ints, Keys, SeedStream, Split
from mgmem.tasks.world import MOVES, World, free_start

Observation = dict[str, npt.NDArray[Any]]
"""view: (B, m, m) int8, 1 for a wall; place: (B, 2) int32, rows and columns from the start."""


class Step(NamedTuple):
    """What came of one action each: (B,) arrays."""

    reward: npt.NDArray[np.float64]
    bumped: npt.NDArray[np.bool_]


class Walks:
    """B walks side by side, each through its own maze."""

    def __init__(self, keys: Keys, world: int, fov: int = 3) -> None:
        """keys: (B,), one for each maze; world: its side; fov: side of what is seen."""
        walls = make_mazes(keys, world)
        self.size, self.fov, self.start = world, fov, free_start(world)
        self.world = World(walls, fov // 2)
        self._starts = self.world.cells(self.start, self.start)
        self.cells = self._starts.copy()
        #: (B * side * side,) whether a cell has been visited.
        self.visited = np.zeros(self.world.walls.size, np.bool_)
        self.visited[self.cells] = True
        self.found = np.ones(len(keys), np.int64)
        self.reachable = self.count_reachable(walls)

    def count_reachable(self, walls: Walls) -> Ints:
        """How many cells of each maze (k, n, n) can be walked to: (k,)."""
        world = World(walls)
        return world.reachable(world.cells(self.start, self.start)).sum(axis=(1, 2))

    def restart(self, which: Ints, walls: Walls, reachable: Ints) -> None:
        """Begin the walks ``which`` (k,) anew in other mazes (k, n, n)."""
        self.world.replace(which, walls)
        self.visited.reshape(self.world.count, -1)[which] = False
        self.cells[which] = self._starts[which]
        self.visited[self._starts[which]] = True
        self.found[which] = 1
        self.reachable[which] = reachable

    def step(self, actions: Ints) -> Step:
        """Take one of four actions each, (B,): up, down, left, right."""
        self.cells, bumped = self.world.move(self.cells, actions)
        new = ~self.visited[self.cells]
        self.visited[self.cells] = True
        self.found += new
        return Step(new.astype(np.float64) - bumped, bumped)

    @property
    def coverage(self) -> npt.NDArray[np.float64]:
        """Share of the reachable cells that have been visited, the start included: (B,)."""
        return self.found / self.reachable

    @property
    def places(self) -> npt.NDArray[np.int32]:
        """Rows and columns from the start: (B, 2)."""
        offsets = self.cells - self._starts + self.start * (self.world.side + 1)
        rows, columns = np.divmod(offsets, self.world.side)
        places = np.empty((len(offsets), 2), np.int32)
        places[:, 0], places[:, 1] = rows - self.start, columns - self.start
        return places

    def observe(self) -> Observation:
        """What the agents see and where they are."""
        view = self.world.view(self.cells, self.fov)
        return {"view": view.view(np.int8), "place": self.places}

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that changes, for a checkpoint."""
        parts = {"walls": self.world.walls, "visited": self.visited, "cells": self.cells}
        parts |= {"found": self.found, "reachable": self.reachable}
        return {name: part.copy() for name, part in parts.items()}

    def restore(self, snapshot: dict[str, npt.NDArray[Any]]) -> None:
        """The inverse of ``snapshot``."""
        self.world.walls[:] = snapshot["walls"]
        self.visited, self.cells = snapshot["visited"].copy(), snapshot["cells"].copy()
        self.found, self.reachable = snapshot["found"].copy(), snapshot["reachable"].copy()


def check_settings(world: int, steps: int, fov: int) -> None:
    """Refuse worlds that can not be, and walks without a step."""
    if world < 5 or world % 2 == 0:
        raise UsageError(f"the world is {world}: give an odd side of at least 5")
    if steps < 1:
        raise UsageError(f"walks of {steps} steps: give at least 1")
    if fov < 3 or fov % 2 == 0:
        raise UsageError(f"the field of view is {fov}: give an odd side of at least 3")


def observation_space(world: int, fov: int) -> gymnasium.spaces.Dict:
    """Of one walk."""
    start = free_start(world)
    furthest = max(start - 1, world - 2 - start)
    return gymnasium.spaces.Dict(
        view=gymnasium.spaces.MultiBinary((fov, fov)),
        place=gymnasium.spaces.Box(-furthest, furthest, (2,), np.int32),
    )


def action_space() -> gymnasium.spaces.Discrete:
    """Up, down, left, right."""
    return gymnasium.spaces.Discrete(len(MOVES))


def episode_keys(seeds: list[int], numbers: Ints, split: Split) -> Keys:
    """The key of maze number ``numbers[i]`` of the stream that starts from ``seeds[i]``: (B,)."""
    streams = (SeedStream(seed, split) for seed in seeds)
    pairs = zip(streams, numbers.tolist(), strict=True)
    return np.concatenate([stream.keys(number, 1) for stream, number in pairs])
