"""Thousands of mazes at once: ``mgmem/Maze-v0`` as one vector environment in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mgmem.errors import UsageError
from mgmem.rl.walks import (
    Observation,
    Walks,
    action_space,
    check_settings,
    episode_keys,
    observation_space,
)
from mgmem.tasks.maze import Walls, make_mazes
from mgmem.tasks.seeds import Ints, Split

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class MazeVectorEnv(VectorEnv[Observation, Ints, Any]):
    """``num_envs`` walks side by side, by the rules of ``MazeEnv``.

    Walk i of ``reset(seed=s)`` is the walk of a ``MazeEnv`` reset with seed s + i, and so are all
    that follow it. A walk that was truncated begins anew in the next step, whatever its action
    then, with reward 0 (gymnasium's next-step autoreset); ``fresh`` says which did just now.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        world: int = 25,
        steps: int = 1000,
        fov: int = 3,
        split: Split = "train",
    ) -> None:
        check_settings(world, steps, fov)
        if num_envs < 1:
            raise UsageError(f"{num_envs} mazes were asked for: give at least 1")
        self.num_envs, self.world, self.steps, self.fov = num_envs, world, steps, fov
        self.split = split
        self.single_observation_space = observation_space(world, fov)
        self.single_action_space = action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._walks: Walks | None = None
        self._seeds: list[int] = []
        self._numbers = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        #: (B,) whether the last observation is the first of a walk: where a memory is emptied.
        self.fresh: Bools = np.zeros(num_envs, np.bool_)
        self._rounds: dict[int, tuple[Walls, Ints]] = {}

    @property
    def walks(self) -> Walks:
        """The walks as they stand."""
        if self._walks is None:
            raise UsageError("the walks have not begun: call reset() before step()")
        return self._walks

    @property
    def over(self) -> Bools:
        """(B,) walks that were truncated: the next step only begins them anew."""
        return self._elapsed >= self.steps

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all walks; a seed starts streams of mazes, and without one the next of each come.

        options: ``{"elapsed": (B,) integers}`` counts so many steps as taken already, so that
        walks end at different times.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is not None or self._walks is None:
            drawn = int(self.np_random.integers(2**62)) if seed is None else seed
            self._start_streams(drawn)
        else:
            self._numbers += 1
        # A world and its tables are built once; whatever changes comes from the rounds.
        everyone = np.arange(self.num_envs)
        if self._walks is None:
            keys = episode_keys(self._seeds, self._numbers, self.split)
            self._walks = Walks(keys, self.world, self.fov)
        self._begin(everyone)
        self._elapsed = np.zeros(self.num_envs, np.int64)
        if options and "elapsed" in options:
            self._elapsed += options["elapsed"]
        self.fresh = np.ones(self.num_envs, np.bool_)
        return self._walks.observe(), self._info(np.zeros(self.num_envs, np.bool_))

    def step(self, actions: Ints) -> tuple[Observation, Floats, Bools, Bools, dict[str, Any]]:
        """One action each, (B,) integers from 0 to 3."""
        walks, actions = self.walks, np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise UsageError(
                f"actions are {actions.dtype} of shape {actions.shape}: "
                f"give integers of shape ({self.num_envs},)"
            )
        if actions.min() < 0 or actions.max() > 3:
            raise UsageError(
                f"actions from {actions.min()} to {actions.max()}: "
                "give 0 (up), 1 (down), 2 (left) or 3 (right)"
            )
        over = self.over
        reward, bumped = walks.step(actions)
        if over.any():
            which = np.flatnonzero(over)
            self._numbers[which] += 1
            self._begin(which)
            reward[which], bumped[which] = 0.0, False
        self._elapsed += 1
        self._elapsed[over] = 0
        self.fresh = over
        never = np.zeros(self.num_envs, np.bool_)
        return walks.observe(), reward, never, self.over, self._info(bumped)

    def snapshot(self) -> dict[str, Any]:
        """All that decides how the walks go on, for a checkpoint."""
        own = {"numbers": self._numbers, "elapsed": self._elapsed, "fresh": self.fresh}
        arrays = {name: part.copy() for name, part in own.items()}
        return {"seeds": list(self._seeds), "walks": self.walks.snapshot(), **arrays}

    def restore(self, snapshot: dict[str, Any]) -> Observation:
        """Go on from a snapshot; returns the observation that was last."""
        self.reset(seed=snapshot["seeds"])
        self.walks.restore(snapshot["walks"])
        self._numbers, self._elapsed = snapshot["numbers"].copy(), snapshot["elapsed"].copy()
        self.fresh = snapshot["fresh"].copy()
        return self.walks.observe()

    def _start_streams(self, seed: int | Sequence[int]) -> None:
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise UsageError(f"{len(seeds)} seeds for {self.num_envs} mazes: give one each")
        self._seeds, self._rounds = list(seeds), {}
        self._numbers = np.zeros(self.num_envs, np.int64)

    def _begin(self, which: Ints) -> None:
        """Put the walks ``which`` at the start of the mazes that ``_numbers`` says."""
        for number in np.unique(self._numbers[which]).tolist():
            walls, reachable = self._round(number)
            those = which[self._numbers[which] == number]
            self.walks.restart(those, walls[those], reachable[those])

    def _round(self, number: int) -> tuple[Walls, Ints]:
        """Maze ``number`` of every stream: made for all at once, which is far cheaper."""
        if number not in self._rounds:
            numbers = np.full(self.num_envs, number)
            walls = make_mazes(episode_keys(self._seeds, numbers, self.split), self.world)
            self._rounds[number] = walls, self.walks.count_reachable(walls)
        for old in [known for known in self._rounds if known < self._numbers.min()]:
            del self._rounds[old]
        return self._rounds[number]

    def _info(self, bumped: Bools) -> dict[str, Any]:
        everyone = np.ones(self.num_envs, np.bool_)
        return {
            "coverage": self.walks.coverage,
            "_coverage": everyone,
            "bumped": bumped,
            "_bumped": everyone,
        }
