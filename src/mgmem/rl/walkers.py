"""Walkers: whoever chooses actions. Here those that follow a rule; `agent.py` has the learner."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from mgmem.rl.explored import FREE, VISITED, ExploredMap
from mgmem.rl.walks import Observation
from mgmem.tasks.seeds import Ints
from mgmem.tasks.world import MOVES, spread

Bools = npt.NDArray[np.bool_]


class Walker(Protocol):
    """Chooses actions, one for each of B walks, from observations alone."""

    def act(self, observation: Observation, fresh: Bools) -> Ints:
        """Actions (B,); ``fresh`` (B,) says which walks have just begun."""


class RandomWalker:
    """A uniformly random one of four moves."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def act(self, observation: Observation, fresh: Bools) -> Ints:
        """Whatever is seen."""
        return self._random.integers(0, len(MOVES), len(fresh))


class CarefulWalker:
    """A uniformly random one of the moves that do not lead into a wall."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def act(self, observation: Observation, fresh: Bools) -> Ints:
        """Anywhere but into what is seen to be wall."""
        luck = self._random.random((len(fresh), len(MOVES)))
        return np.where(_free_moves(observation), luck, -1.0).argmax(axis=1)


class CuriousWalker:
    """The free neighbour where it has been least often, drawn among such: counts, and no plan."""

    def __init__(self, grid: int, seed: int = 0) -> None:
        self._grid, self._random = grid, np.random.default_rng(seed)
        self._visits: npt.NDArray[np.int64] | None = None

    def act(self, observation: Observation, fresh: Bools) -> Ints:
        """Count this visit, compare the neighbours'."""
        agents, side = np.arange(len(fresh)), self._grid + 2  # neighbours may be off the map
        if self._visits is None or len(self._visits) != len(fresh):
            self._visits = np.zeros((len(fresh), side, side), np.int64)
        self._visits[fresh] = 0
        rows, columns = observation["place"].T.astype(np.int64) + side // 2
        self._visits[agents, rows, columns] += 1
        near = np.array(MOVES)
        often = self._visits[
            agents[:, None], rows[:, None] + near[:, 0], columns[:, None] + near[:, 1]
        ]
        often = np.where(_free_moves(observation), often, _FAR)
        luck = self._random.random(often.shape)
        return np.where(often == often.min(axis=1, keepdims=True), luck, -1.0).argmax(axis=1)


class FrontierWalker:
    """The shortest way, through what is known, to the nearest cell seen but not visited.

    A map without an error and a search on it: what a good explorer covers. Once all that is known
    has been visited, which is all that can be reached, it walks about at random.
    """

    def __init__(self, grid: int, seed: int = 0) -> None:
        self._grid, self._careful = grid, CarefulWalker(seed)
        self._map: ExploredMap | None = None

    def act(self, observation: Observation, fresh: Bools) -> Ints:
        """One step of that way each."""
        if self._map is None or len(self._map.planes) != len(fresh):
            self._map = ExploredMap(len(fresh), self._grid)
        self._map.update(observation, fresh)
        free, visited = self._map.planes[:, FREE], self._map.planes[:, VISITED]
        rows, columns = self._map.positions(observation)
        agents, here = np.arange(len(fresh)), np.array(MOVES)
        distance = _distances(free & ~visited, free, (agents, rows, columns))
        # What lies beyond the map is wall.
        distance = np.pad(distance, ((0, 0), (1, 1), (1, 1)), constant_values=_FAR)
        near_rows, near_columns = rows[:, None] + here[:, 0], columns[:, None] + here[:, 1]
        ways = distance[agents[:, None], near_rows + 1, near_columns + 1]
        aimless = self._careful.act(observation, fresh)
        return np.where(ways.min(axis=1) == _FAR, aimless, ways.argmin(axis=1))


_FAR = np.iinfo(np.int32).max


def _distances(goals: Bools, free: Bools, agents: tuple[Ints, Ints, Ints]) -> npt.NDArray[np.int32]:
    """Steps over free cells to the nearest goal, at least around the agents: (B, grid, grid)."""
    distance = np.where(goals, np.int32(0), _FAR)
    reached, step, waiting = goals, 0, goals.any(axis=(1, 2))
    while (waiting & ~reached[agents]).any():
        step += 1
        grown = spread(reached) & free
        new = grown & ~reached
        if not new.any():
            break
        distance[new] = step
        reached = reached | grown
    return distance


def _free_moves(observation: Observation) -> Bools:
    """(B, 4) whether each move leads onto a free cell."""
    centre = observation["view"].shape[1] // 2
    moves = np.array(MOVES) + centre
    return observation["view"][:, moves[:, 0], moves[:, 1]] == 0
