"""Mapping and localization: explore a maze, then say where a patch was seen.

At every step the agent sees the m x m cells around it and how far it is from its start. A query
is a k x k patch it has completely seen by then; the answer marks, on a grid centred on the
start, every position whose whole k x k window has been seen by then and looks the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, F, Metric, Reads, Shapes, check_piece, check_times
from mgmem.tasks.losses import bits_loss
from mgmem.tasks.maze import Walls, make_mazes
from mgmem.tasks.motion import MOTIONS, Motion, MotionName
from mgmem.tasks.scores import PixelScore
from mgmem.tasks.seeds import Ints, Keys, SeedStream, below, draw
from mgmem.tasks.windows import Windows, first_observed
from mgmem.tasks.world import World, as_channels


@dataclass(frozen=True)
class Mapping:
    """The mapping task.

    world: side of the maze, odd.
    fov: side m of what the agent sees, odd.
    queries: side k of the patches asked for, odd and at least m; one reader each.
    motion: "spiral", "random", "curious": to where it has been least often, or "scattered": all
        over the place, for training.
    path_length: steps of an episode; None: the whole interior in a spiral, 500 at random.
    grid: side of the answers. The start is at (grid // 2, grid // 2).
    location: "scaled": row and column relative to the start, times location_scale;
        "raw": the same as plain integers, the start being at (world, world).
    location_scale: None: 2 / grid. It depends on the grid only, so that worlds of different
        sizes can share a network, and all locations lie in [-1, 1].
    stretch: for training: episodes are so many steps from anywhere on the path, and know nothing
        of the steps before; None, the task proper: all of it.
    rare: for training: the share of queries drawn among the different patches seen; the others,
        and in the task proper all, are drawn among the positions seen.
    foreign: for training: the share of queries for a patch from anywhere in the world, which may
        not have been seen: then nothing is to be marked.
    """

    world: int = 15
    fov: int = 3
    queries: tuple[int, ...] = (3,)
    motion: MotionName = "spiral"
    path_length: int | None = None
    grid: int = 24
    location: Literal["scaled", "raw"] = "scaled"
    location_scale: float | None = None
    stretch: int | None = None
    rare: float = 0.0
    foreign: float = 0.0

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_path_and_location(self)

    @property
    def name(self) -> str:
        """mapping."""
        return "mapping"

    @property
    def reads(self) -> Reads:
        """Memory is queried while it is being written."""
        return "during"

    @property
    def shapes(self) -> Shapes:
        """Input (4, m, m), queries (4, k, k), answers (1, grid, grid)."""
        return Shapes(
            input=(4, self.fov, self.fov),
            queries=tuple((4, k, k) for k in self.queries),
            answers=tuple((1, self.grid, self.grid) for _ in self.queries),
        )

    @property
    def episode_length(self) -> int:
        """Steps of an episode, the one at the start included."""
        if self.path_length is None:
            return self._motion.default_length(self.world)
        return self.path_length

    @property
    def start(self) -> int:
        """Row, and column, of the agent's first cell."""
        return self._motion.start(self.world)

    @property
    def metric(self) -> Metric:
        """F over pixels."""
        return F

    def episodes(self, stream: SeedStream, first: int, count: int) -> MappingEpisodes:
        """Fresh mazes and the agent's paths through them."""
        keys = stream.keys(first, count)
        walls = make_mazes(keys, self.world)
        path = self._motion.path(keys, walls, self.episode_length)
        if self.stretch is None:
            return self.follow(keys, walls, path, first)
        starts = below(draw(keys, "stretch", [0]), len(path) - self.stretch + 1)
        steps = starts + np.arange(self.stretch)[:, None]
        return MappingEpisodes(self, keys, walls, path[steps, np.arange(count)], first)

    def practised(
        self, stretch: int | None, rare: float, foreign: float, motion: MotionName | None
    ) -> Mapping:
        """For training: stretches of the path, queries for rare or foreign patches, a motion."""
        return replace(
            self, stretch=stretch, rare=rare, foreign=foreign, motion=motion or self.motion
        )

    def follow(self, keys: Keys, walls: Walls, path: Ints, first: int = 0) -> MappingEpisodes:
        """Episodes along paths of any origin, such as a policy's, starting at `start`.

        keys: (B,); walls: (B, n, n); path: (T, B, 2); first: number of the first episode.
        """
        if walls.shape[1] != self.world or not (path[0] == self.start).all():
            raise UsageError(
                f"the mazes have side {walls.shape[1]} and paths start at {path[0, 0].tolist()}: "
                f"give mazes of side {self.world} and paths from ({self.start}, {self.start})"
            )
        return MappingEpisodes(self, keys, walls, path, first)

    def observation(self, seen: Walls, relative: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """What a memory is told: walls seen (..., m, m) and the place (..., 2): (..., 4, m, m)."""
        inputs = as_channels(seen)
        place = relative.astype(np.int32)[..., None, None]
        if self.location == "raw":
            inputs[..., 2:, :, :] = place + self.world
        else:
            scale = 2 / self.grid if self.location_scale is None else self.location_scale
            inputs[..., 2:, :, :] = place * np.float32(scale)
        return inputs

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Sigmoid cross-entropy summed over the grid, mean over counted queries."""
        return bits_loss(answers, batch)

    def new_score(self) -> PixelScore:
        """Precision, recall and F over pixels; the key metric is f."""
        return PixelScore(tuple(f"{k}x{k}" for k in self.queries))

    @property
    def _motion(self) -> Motion:
        return MOTIONS[self.motion]


class MappingEpisodes:
    """B agents, each on its path through its maze."""

    def __init__(self, task: Mapping, keys: Keys, walls: Walls, path: Ints, first: int) -> None:
        self._task = task
        self._keys = keys
        self._first = first
        self._relative = (path - task.start).astype(np.int32)
        pad = max(task.fov, *task.queries) // 2
        self._world = World(walls, pad)
        self._cells = self._world.cells(path[..., 0], path[..., 1])
        inner = self._cells - self._world.first_cells
        observed = first_observed(inner, self._world.side, task.fov)
        self._windows = [Windows(self._world.walls, observed, k, pad) for k in task.queries]

    @property
    def length(self) -> int:
        """Steps of each episode."""
        return len(self._cells)

    def batch(self, start: int, stop: int, times: Tensor | None = None) -> Batch:
        """Steps start, ..., stop - 1, with queries after steps start + times (default: all).

        Several queries at one step are different draws. Until a whole k x k window has been
        seen there is nothing to ask: such a query is all zeros and has weight 0.
        """
        check_piece(start, stop, self.length)
        times = check_times(torch.arange(stop - start) if times is None else times, stop - start)
        moments = times.numpy() + start
        asked = [self._ask(reader, moments) for reader in range(len(self._windows))]
        return Batch(
            inputs=torch.from_numpy(self._inputs(start, stop)),
            reset=None,
            times=times,
            queries=tuple(torch.from_numpy(query) for query, _, _ in asked),
            targets=tuple(torch.from_numpy(target) for _, target, _ in asked),
            weight=torch.from_numpy(np.stack([known for _, _, known in asked])).float(),
            episode=self._first + torch.arange(len(self._keys)),
        )

    def _inputs(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """What the agents see and where they are: (T, B, 4, m, m)."""
        seen = self._world.view(self._cells[start:stop], self._task.fov)
        return self._task.observation(seen, self._relative[start:stop])

    def _ask(
        self, reader: int, moments: Ints
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """(Q, B, 4, k, k) queries, (Q, B, 1, grid, grid) targets, (Q, B) whether they count."""
        windows, size = self._windows[reader], self._task.queries[reader]
        repeated = np.arange(len(moments)) - np.searchsorted(moments, moments)
        counters = moments + (repeated << 32)
        bits = draw(self._keys, f"query of size {size}", counters[:, None])
        chosen, known = windows.draw(bits, moments)
        if self._task.rare:
            lot = draw(self._keys, f"rare query of size {size}", counters[:, None])
            by_look = below(lot, 1000) < 1000 * self._task.rare
            chosen = np.where(by_look, windows.draw_looks(bits, moments), chosen)
        inner = self._task.world - 2
        if self._task.foreign:
            lot = draw(self._keys, f"foreign query of size {size}", counters[:, None])
            anywhere = below(bits, inner * inner)
            chosen = np.where(below(lot, 1000) < 1000 * self._task.foreign, anywhere, chosen)
        row, column = np.divmod(chosen, inner)
        queries = as_channels(self._world.view(self._world.cells(row + 1, column + 1), size))
        queries *= known[:, :, None, None, None]

        grid = self._task.grid
        targets = np.zeros((*chosen.shape, 1, grid, grid), np.float32)
        corner = grid // 2 + 1 - self._task.start
        maps = targets[:, :, 0, corner : corner + inner, corner : corner + inner]
        maps[:] = windows.matches(chosen, moments).reshape(maps.shape)
        return queries, targets, known


def _check_sizes(task: Mapping) -> None:
    if task.world < 5 or task.world % 2 == 0:
        raise UsageError(f"the world is {task.world}: give an odd side of at least 5")
    if task.fov < 3 or task.fov % 2 == 0:
        raise UsageError(f"the field of view is {task.fov}: give an odd side of at least 3")
    if not task.queries or len(set(task.queries)) < len(task.queries):
        raise UsageError(f"the query sizes are {task.queries}: give one or more different ones")
    largest = task.world + task.fov - 3
    for size in task.queries:
        if size % 2 == 0 or not task.fov <= size <= largest:
            raise UsageError(
                f"the query size is {size}: give an odd size from {task.fov} (the field of view) "
                f"to {largest} (all that can be seen of a world of {task.world})"
            )


def _check_path_and_location(task: Mapping) -> None:
    if task.motion not in MOTIONS:
        raise UsageError(f"unknown motion {task.motion!r}: choose one of {', '.join(MOTIONS)}")
    longest = MOTIONS[task.motion].longest(task.world)
    if task.episode_length < 1 or (longest is not None and task.episode_length > longest):
        allowed = "at least 1" if longest is None else f"from 1 to {longest}"
        raise UsageError(
            f"the path has {task.path_length} steps: {task.motion} motion in a world of "
            f"{task.world} allows {allowed}"
        )
    before, after = task.start - 1, task.world - 2 - task.start
    if before > task.grid // 2 or after >= task.grid - task.grid // 2:
        smallest = max(2 * before, 2 * after + 1)
        raise UsageError(
            f"a world of {task.world} does not fit a grid of {task.grid}, centred on the start: "
            f"give a grid of at least {smallest} or a smaller world"
        )
    if task.stretch is not None and not 1 <= task.stretch <= task.episode_length:
        raise UsageError(
            f"a stretch of {task.stretch} steps of a path of {task.episode_length}: give 1 to "
            f"{task.episode_length}"
        )
    for kind, share in (("rare", task.rare), ("foreign", task.foreign)):
        if not 0 <= share <= 1:
            raise UsageError(f"the share of {kind} queries is {share}: give one from 0 to 1")
    if task.location not in ("scaled", "raw"):
        raise UsageError(f"unknown location {task.location!r}: choose one of scaled, raw")
    if task.location_scale is None:
        return
    limit = 1 / max(before, after)
    if task.location == "raw" or not 0 < task.location_scale <= limit:
        raise UsageError(
            f"the location scale is {task.location_scale} for {task.location} locations: give "
            f"more than 0 and at most {limit:.6g}, with scaled locations, so that they lie "
            "in [-1, 1]"
        )
