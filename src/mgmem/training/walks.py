"""The lesson of tasks that ask during long episodes: chunks of them, with the memory carried on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Episodes, Task, WalkTask
from mgmem.tasks.motion import MotionName
from mgmem.tasks.seeds import SeedStream
from mgmem.training.feed import Growth, Horizon, OneHorizon, Share


@dataclass(frozen=True)
class Queries:
    """Which questions are asked in training, of all that could be."""

    share: float = 0.25
    """Share of a chunk's steps after which a query is asked."""
    limit: int = 0
    """At most so many of each sequence in a chunk; 0: no limit."""
    since: float = 0.0
    """Queries are asked after this share of a chunk: late ones are about more that was seen."""
    early: float = 0.0
    """Share of the queries that is asked before that all the same."""
    rare: float = 0.0
    """Share of the queries drawn among different patches instead of positions."""
    foreign: float = 0.0
    """Share of the queries for patches from anywhere in the world, seen or not: without them
    episodes of a few steps do not teach to tell patches apart."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or not 0 <= self.since < 1 or self.limit < 0:
            raise UsageError(
                f"queries at {self.share} of the steps since {self.since}, at most {self.limit}: "
                "give shares in (0, 1] and [0, 1), and a limit of at least 0"
            )
        for kind, share in (("early", self.early), ("rare", self.rare), ("foreign", self.foreign)):
            if not 0 <= share <= 1:
                raise UsageError(f"{kind} {share}: give a share from 0 to 1")

    def times(self, length: int, random: np.random.Generator) -> Tensor:
        """Steps of a chunk after which a query is asked: sorted, without repetition."""
        first = int(self.since * length)
        count = min(max(1, round(self.share * length)), length - first)
        count = min(count, self.limit or count)
        early = min(round(self.early * count), first, count - 1)
        chosen = first + random.choice(length - first, count - early, replace=False)
        if early:
            chosen = np.concatenate([chosen, random.choice(first, early, replace=False)])
        return torch.from_numpy(np.sort(chosen).astype(np.int64))


@dataclass(frozen=True)
class Walks:
    """Chunks of long episodes, or stretches of them, short ones first."""

    chunk: int = 20
    """Steps of truncated back-propagation; the state is carried on to the next chunk."""
    groups: int = 1
    """The batch is cut into so many groups at different places of their episodes."""
    anywhere: bool = False
    """Episodes left early are stretches from anywhere on the path, not its beginning."""
    motions: tuple[MotionName, ...] = ()
    """How agents move: the first group as the first says, and so on in turn; none: as the task
    has it."""
    growth: Growth | None = None
    queries: Queries = field(default_factory=Queries)

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.groups < 1:
            raise UsageError(f"chunk {self.chunk}, groups {self.groups}: give at least 1")

    def feed(self, task: Task, stream: SeedStream, batch: int, share: Share) -> WalkFeed:
        """Batches of ``batch`` sequences."""
        if not isinstance(task, WalkTask):
            raise UsageError(f"{task.name} can not be practised on stretches of walks")
        if batch % self.groups:
            raise UsageError(f"{self.groups} groups do not divide a batch of {batch}")
        return WalkFeed(self, task, stream, batch, share)

    def steps(self, task: Task) -> int:
        """Steps of an update once episodes have their whole length."""
        return even_chunk(task.episode_length, self.chunk)


@dataclass
class _Group:
    """Episodes that run side by side, and how far they have come."""

    first: int
    horizon: int
    position: int
    episodes: Episodes


class WalkFeed(OneHorizon):
    """Chunks of long episodes, in groups that are at different places of their episodes.

    With all sequences at the same step, updates swing between early and late memories; with
    staggered groups each update sees some of both. The horizon is the step at which an episode is
    left or, if the lesson starts anywhere, the length of the stretches that are episodes.
    """

    carries_state = True
    _task: WalkTask

    def __init__(
        self, lesson: Walks, task: WalkTask, stream: SeedStream, batch: int, share: Share
    ) -> None:
        self._lesson, self._task, self._stream, self._share = lesson, task, stream, share
        self._size = batch // lesson.groups
        self.horizon = Horizon(lesson.growth, task.episode_length)
        self._updates = 0
        self._next_episode = 0
        self.steps = 0
        self._groups: list[_Group] = []
        for index in range(lesson.groups):
            # The first episodes end at different steps: that is what staggers the groups.
            part = -(-self.horizon.steps * (index + 1) // lesson.groups)
            self._groups.append(self._start(index, part))

    def _start(self, index: int, horizon: int) -> _Group:
        first = self._next_episode
        self._next_episode += self._size
        return _Group(first, horizon, 0, self._episodes(index, first, horizon))

    def _episodes(self, index: int, first: int, horizon: int) -> Episodes:
        """Those of group number ``index``."""
        lesson = self._lesson
        stretch = horizon if lesson.anywhere else None
        motion = lesson.motions[index % len(lesson.motions)] if lesson.motions else None
        queries = lesson.queries
        task = self._task.practised(stretch, queries.rare, queries.foreign, motion)
        return task.episodes(self._stream, *self._share.of(first, self._size))

    def next(self) -> Batch:
        """The next chunk of every group, side by side."""
        length = even_chunk(self.horizon.steps, self._lesson.chunk)
        random = np.random.Generator(np.random.Philox(self._stream.seeds(1, self._updates)))
        times = self._lesson.queries.times(length, random)
        pieces, fresh = [], []
        for index, group in enumerate(self._groups):
            if group.position >= group.horizon:
                group = self._groups[index] = self._start(index, self.horizon.steps)
            fresh.append(group.position == 0)
            stop = min(group.position + length, group.horizon)
            pieces.append(_padded(group.episodes, group.position, stop, length, times))
            group.position += length
        self._updates += 1
        self.steps += length
        return _side_by_side(pieces, fresh, length, times)

    def state_dict(self) -> dict[str, Any]:
        """Where every group is; the episodes themselves are made again from their numbers."""
        return {
            "updates": self._updates,
            "steps": self.steps,
            **self.horizon.state_dict(),
            "next_episode": self._next_episode,
            "groups": [[g.first, g.horizon, g.position] for g in self._groups],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._updates, self.steps = state["updates"], state["steps"]
        self.horizon.load_state_dict(state)
        self._next_episode = state["next_episode"]
        longest = self._task.episode_length
        for _, horizon, _ in state["groups"]:
            if not 1 <= horizon <= longest:
                raise UsageError(f"an episode of {horizon} steps; they have 1 to {longest}")
        self._groups = [
            _Group(first, horizon, position, self._episodes(index, first, horizon))
            for index, (first, horizon, position) in enumerate(state["groups"])
        ]


def even_chunk(horizon: int, longest: int) -> int:
    """Steps of each chunk when an episode is cut into as few as possible, all about as long.

    Cut at ``longest``, an episode of 44 steps would give chunks of 43 and of 1, and every other
    update would see next to nothing.
    """
    return -(-horizon // -(-horizon // longest))


def _padded(episodes: Episodes, start: int, stop: int, length: int, times: Tensor) -> Batch:
    """Steps start to stop as ``length`` steps; queries past the end get weight 0."""
    asked = times[times < stop - start]
    batch = episodes.batch(start, stop, asked)
    weight = batch.weight
    if weight is None:
        weight = torch.ones(len(batch.queries), len(asked), batch.inputs.shape[1])
    short, missing = length - (stop - start), len(times) - len(asked)
    return Batch(
        inputs=_more_rows(batch.inputs, short),
        reset=None,
        times=times,
        queries=tuple(_more_rows(query, missing) for query in batch.queries),
        targets=tuple(_more_rows(target, missing) for target in batch.targets),
        weight=F.pad(weight, (0, 0, 0, missing)),
        episode=batch.episode,
    )


def _more_rows(tensor: Tensor, rows: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(rows, *tensor.shape[1:])]) if rows else tensor


def _side_by_side(
    pieces: Sequence[Batch], fresh: Sequence[bool], length: int, times: Tensor
) -> Batch:
    """One batch of all groups; groups that begin an episode reset their memory first."""
    reset = torch.zeros(length, sum(piece.inputs.shape[1] for piece in pieces), dtype=torch.bool)
    columns = reset[0].split([piece.inputs.shape[1] for piece in pieces])
    for column, begins in zip(columns, fresh, strict=True):
        column.fill_(begins)
    readers = range(len(pieces[0].queries))
    return Batch(
        inputs=torch.cat([piece.inputs for piece in pieces], 1),
        reset=reset if any(fresh) else None,
        times=times,
        queries=tuple(torch.cat([p.queries[r] for p in pieces], 1) for r in readers),
        targets=tuple(torch.cat([p.targets[r] for p in pieces], 1) for r in readers),
        weight=torch.cat([p.weight for p in pieces if p.weight is not None], 2),
        episode=torch.cat([p.episode for p in pieces if p.episode is not None]),
    )
