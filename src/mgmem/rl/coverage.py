"""How well is a maze covered: walks on fresh mazes, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.rl.vector import MazeVectorEnv
from mgmem.rl.walkers import Walker
from mgmem.rl.walks import episode_keys
from mgmem.tasks.base import Estimate
from mgmem.tasks.maze import Walls
from mgmem.tasks.seeds import Ints, Keys, Split

_NORMAL_95 = 1.96
GOAL = 0.9


@dataclass(frozen=True)
class Log:
    """N whole walks of T steps each.

    coverage: (N, T + 1), the first before any step. reward, bumped: (N, T). path: (T + 1, N, 2)
    rows and columns in the maze. keys: (N,), walls: (N, n, n): the mazes.
    """

    coverage: npt.NDArray[np.float64]
    reward: npt.NDArray[np.float64]
    bumped: npt.NDArray[np.bool_]
    path: Ints
    keys: Keys
    walls: Walls

    def summary(self) -> dict[str, Estimate]:
        """Means over walks, with 95% intervals.

        coverage: at the end; area: mean over the steps, that is under the curve; steps_to_90:
        until 90 % is covered, a walk that never gets there counting whole; reached_90: the share
        that does; bumps: steps into walls per 100; reward: of a walk.
        """
        there = self.coverage >= GOAL
        steps = self.coverage.shape[1] - 1
        return {
            "coverage": mean_estimate(self.coverage[:, -1]),
            "area": mean_estimate(self.coverage[:, 1:].mean(axis=1)),
            "steps_to_90": mean_estimate(np.where(there.any(1), there.argmax(1), steps)),
            "reached_90": mean_estimate(there.max(axis=1)),
            "bumps": mean_estimate(100 * self.bumped.mean(axis=1)),
            "reward": mean_estimate(self.reward.sum(axis=1)),
        }


def mean_estimate(values: npt.NDArray) -> Estimate:
    """The mean of (N,) independent values and its 95% interval."""
    values = values.astype(np.float64)
    mean = float(values.mean())
    half = _NORMAL_95 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return Estimate(mean, mean - half, mean + half)


def take_walks(
    walker: Walker,
    *,
    world: int,
    steps: int,
    count: int,
    seed: int,
    split: Split = "test",
    batch: int = 64,
    progress: Callable[[int], None] = lambda done: None,
) -> Log:
    """``count`` whole walks, one each through the first mazes of the streams seed, seed + 1, ..."""
    if count < 1:
        raise UsageError(f"{count} walks were asked for: give at least 1")
    parts = []
    for first in range(0, count, batch):
        size = min(batch, count - first)
        seeds = list(range(seed + first, seed + first + size))
        parts.append(_batch_of_walks(walker, MazeVectorEnv(size, world, steps, split=split), seeds))
        progress(first + size)
    return Log(
        coverage=np.concatenate([part.coverage for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        bumped=np.concatenate([part.bumped for part in parts]),
        path=np.concatenate([part.path for part in parts], axis=1),
        keys=np.concatenate([part.keys for part in parts]),
        walls=np.concatenate([part.walls for part in parts]),
    )


def _batch_of_walks(walker: Walker, env: MazeVectorEnv, seeds: list[int]) -> Log:
    size, steps = env.num_envs, env.steps
    observation, info = env.reset(seed=seeds)
    start = env.walks.start
    coverage = np.empty((size, steps + 1))
    reward, bumped = np.empty((size, steps)), np.empty((size, steps), np.bool_)
    path = np.empty((steps + 1, size, 2), np.int64)
    coverage[:, 0], path[0] = info["coverage"], observation["place"] + start
    for step in range(steps):
        actions = walker.act(observation, env.fresh)
        observation, reward[:, step], _, _, info = env.step(actions)
        coverage[:, step + 1], bumped[:, step] = info["coverage"], info["bumped"]
        path[step + 1] = observation["place"] + start
    keys = episode_keys(seeds, np.zeros(size, np.int64), env.split)
    inside = slice(env.walks.world.pad, -env.walks.world.pad)
    walls = env.walks.world.walls[:, inside, inside].copy()
    return Log(coverage, reward, bumped, path, keys, walls)


def steps_per_second(env: MazeVectorEnv, walker: Walker, seconds: float) -> float:
    """How many steps of all walks together a walker and its environment take in a second."""
    observation, _ = env.reset(seed=0)
    observation, *_ = env.step(walker.act(observation, env.fresh))
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        observation, *_ = env.step(walker.act(observation, env.fresh))
        done += env.num_envs
    return done / (time.perf_counter() - started)
