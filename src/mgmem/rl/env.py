"""``mgmem/Maze-v0``: one agent in one unknown maze, as a gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.rl.walks import (
    Observation,
    Walks,
    action_space,
    check_settings,
    episode_keys,
    observation_space,
)
from mgmem.tasks.seeds import Split

_COLORS = {"wall": (43, 52, 64), "free": (255, 255, 255), "visited": (86, 180, 233)}
_AGENT = (213, 94, 0)
_PIXELS = 8


class MazeEnv(gymnasium.Env[Any, Any]):
    """Cover a maze that you have never seen.

    world: side of the maze, odd; steps: of a walk, at which it is truncated; fov: side of what is
    seen; split: "train", "valid" or "test": mazes of one are never those of another.

    Observations are ``view`` (fov, fov), 1 for a wall, and ``place`` (2,), rows and columns from
    the start. Actions are 0 up, 1 down, 2 left, 3 right. Reward is 1 for a cell never visited
    before, -1 for a wall, 0 otherwise. ``info`` holds ``coverage``, the share of reachable cells
    that have been visited, and ``bumped``.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        world: int = 25,
        steps: int = 1000,
        fov: int = 3,
        split: Split = "train",
        render_mode: str | None = None,
    ) -> None:
        check_settings(world, steps, fov)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render mode {render_mode!r}: there is rgb_array")
        self.world, self.steps, self.fov, self.split = world, steps, fov, split
        self.render_mode = render_mode
        self.observation_space = observation_space(world, fov)
        self.action_space = action_space()
        self._walk: Walks | None = None
        self._seed, self._episode, self._elapsed = 0, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a walk; a seed starts a stream of mazes, and without one the next of it comes."""
        super().reset(seed=seed)
        if seed is not None or self._walk is None:
            drawn = int(self.np_random.integers(2**62)) if seed is None else seed
            self._seed, self._episode = drawn, 0
        else:
            self._episode += 1
        keys = episode_keys([self._seed], np.array([self._episode]), self.split)
        self._walk, self._elapsed = Walks(keys, self.world, self.fov), 0
        return self._observed(self._walk), self._info(self._walk, bumped=False)

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One action; a walk never terminates, it is truncated after ``steps``."""
        if self._walk is None or self._elapsed >= self.steps:
            when = "has not begun" if self._walk is None else f"ended after {self.steps} steps"
            raise UsageError(f"the walk {when}: call reset() before step()")
        if not self.action_space.contains(action):
            raise UsageError(f"action {action!r}: give 0 (up), 1 (down), 2 (left) or 3 (right)")
        self._elapsed += 1
        reward, bumped = self._walk.step(np.array([action]))
        info = self._info(self._walk, bumped=bool(bumped[0]))
        truncated = self._elapsed >= self.steps
        return self._observed(self._walk), float(reward[0]), False, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The maze from above, (height, width, 3): visited cells blue, the agent orange."""
        if self.render_mode is None or self._walk is None:
            return None
        walk = self._walk
        picture = np.full((*walk.world.walls[0].shape, 3), _COLORS["free"], np.uint8)
        picture[walk.visited.reshape(picture.shape[:2])] = _COLORS["visited"]
        picture[walk.world.walls[0]] = _COLORS["wall"]
        picture.reshape(-1, 3)[walk.cells[0]] = _AGENT
        inside = slice(walk.world.pad, -walk.world.pad)
        return picture[inside, inside].repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)

    def _observed(self, walk: Walks) -> Observation:
        return {name: values[0] for name, values in walk.observe().items()}

    def _info(self, walk: Walks, bumped: bool) -> dict[str, Any]:
        return {"coverage": float(walk.coverage[0]), "bumped": bumped}
