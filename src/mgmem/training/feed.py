"""What the loop trains on next: whole sequences, or chunks of long episodes.

A feed is a pure function of its position: the same position gives the same batch, so saving the
position is all that resuming needs. With several processes each takes its share of every group
of sequences; together they see exactly the batch that one process would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Episodes, SequenceTask, Task, WalkTask
from mgmem.tasks.seeds import SeedStream
from mgmem.training.recipe import Recipe


@dataclass(frozen=True)
class Share:
    """This process's part of the work: ``rank`` of ``world`` processes."""

    rank: int = 0
    world: int = 1

    def of(self, first: int, count: int) -> tuple[int, int]:
        """First number and count of this process's part of ``count`` things from ``first``."""
        if count % self.world:
            raise UsageError(f"{self.world} processes do not divide {count} sequences evenly")
        part = count // self.world
        return first + self.rank * part, part


class Horizon:
    """How long episodes are for now: it grows from the recipe's start to the whole.

    Short memories are learned first, and each stretch only once the one before is known.
    """

    _score_decay = 0.95

    def __init__(self, recipe: Recipe, full: int) -> None:
        self._recipe, self._full = recipe, full
        self.steps = min(recipe.horizon or full, full)
        self._smoothed = 0.0

    def hear(self, score: float) -> None:
        """Grow once the smoothed score on training queries meets the goal."""
        self._smoothed += (1 - self._score_decay) * (score - self._smoothed)
        if self.steps < self._full and self._smoothed >= self._recipe.horizon_goal:
            self.steps = min(self._full, math.ceil(self.steps * self._recipe.horizon_growth))
            # The new stretch has to be learned before the next: the score starts lower again.
            self._smoothed = 0.9 * self._recipe.horizon_goal

    def state_dict(self) -> dict[str, Any]:
        """Length and score so far."""
        return {"horizon": self.steps, "smoothed": self._smoothed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; a state without a horizon is that of whole episodes."""
        self.steps = state.get("horizon", self.steps)
        self._smoothed = state.get("smoothed", self._smoothed)


class Feed(Protocol):
    """A source of batches with a position that can be saved."""

    carries_state: bool
    steps: int
    horizon: Horizon

    def next(self) -> Batch:
        """The next batch."""

    def score(self, value: float) -> None:
        """Hear how well the last batch was answered, between 0 and 1."""

    def state_dict(self) -> dict[str, Any]:
        """The position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""


def make_feed(task: Task, seed: int, recipe: Recipe, share: Share | None = None) -> Feed:
    """Whole sequences for tasks that read after them, chunks for tasks that read during."""
    stream = SeedStream(seed, "train")
    if task.reads == "after":
        return WholeFeed(cast(SequenceTask, task), stream, recipe, share or Share())
    return ChunkFeed(cast(WalkTask, task), stream, recipe, share or Share())


class WholeFeed:
    """Every batch is fresh sequences from their first step to their last.

    With a horizon the sequences themselves are shorter at first: fewer items to keep.
    """

    carries_state = False

    def __init__(
        self, task: SequenceTask, stream: SeedStream, recipe: Recipe, share: Share
    ) -> None:
        self._task, self._stream, self._share = task, stream, share
        self._count, self._questions = recipe.batch, recipe.questions
        self.horizon = Horizon(recipe, task.episode_length)
        self._updates = 0
        self.steps = 0

    def next(self) -> Batch:
        """The next ``batch`` sequences, whole."""
        first, count = self._share.of(self._updates * self._count, self._count)
        task = self._task.exercise(self.horizon.steps, self._questions)
        episodes = task.episodes(self._stream, first, count)
        self._updates += 1
        self.steps += episodes.length
        return episodes.batch(0, episodes.length)

    def score(self, value: float) -> None:
        """Longer sequences once these are known."""
        self.horizon.hear(value)

    def state_dict(self) -> dict[str, Any]:
        """The number of batches so far, and how long they are."""
        return {"updates": self._updates, "steps": self.steps, **self.horizon.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._updates, self.steps = state["updates"], state["steps"]
        self.horizon.load_state_dict(state)


@dataclass
class _Group:
    """Episodes that run side by side, and how far they have come."""

    first: int
    horizon: int
    position: int
    episodes: Episodes


class ChunkFeed:
    """Chunks of long episodes, in groups that are at different places of their episodes.

    With all sequences at the same step, updates swing between early and late memories; with
    staggered groups each update sees some of both. The horizon is the step at which an episode is
    left or, if the recipe starts anywhere, the length of the stretches that are episodes.
    """

    carries_state = True

    def __init__(self, task: WalkTask, stream: SeedStream, recipe: Recipe, share: Share) -> None:
        self._task, self._stream, self._recipe, self._share = task, stream, recipe, share
        self._size = recipe.batch // recipe.groups
        self.horizon = Horizon(recipe, task.episode_length)
        self._updates = 0
        self._next_episode = 0
        self.steps = 0
        self._groups: list[_Group] = []
        for index in range(recipe.groups):
            # The first episodes end at different steps: that is what staggers the groups.
            part = -(-self.horizon.steps * (index + 1) // recipe.groups)
            self._groups.append(self._start(part))

    def _start(self, horizon: int) -> _Group:
        first = self._next_episode
        self._next_episode += self._size
        return _Group(first, horizon, 0, self._episodes(first, horizon))

    def _episodes(self, first: int, horizon: int) -> Episodes:
        stretch = horizon if self._recipe.anywhere else None
        task = self._task.exercise(stretch, self._recipe.rare_queries)
        return task.episodes(self._stream, *self._share.of(first, self._size))

    def next(self) -> Batch:
        """The next chunk of every group, side by side."""
        length = even_chunk(self.horizon.steps, self._recipe.chunk)
        times = self._times(length)
        pieces, fresh = [], []
        for index, group in enumerate(self._groups):
            if group.position >= group.horizon:
                group = self._groups[index] = self._start(self.horizon.steps)
            fresh.append(group.position == 0)
            stop = min(group.position + length, group.horizon)
            pieces.append(_padded(group.episodes, group.position, stop, length, times))
            group.position += length
        self._updates += 1
        self.steps += length
        return _side_by_side(pieces, fresh, length, times)

    def _times(self, length: int) -> Tensor:
        """Steps of this chunk after which a query is asked: sorted, without repetition."""
        recipe = self._recipe
        first = int(recipe.query_from * length)
        count = min(max(1, round(recipe.query_share * length)), length - first)
        count = min(count, recipe.query_limit or count)
        seed = np.random.SeedSequence(self._stream.root, spawn_key=(1, self._updates))
        random = np.random.Generator(np.random.Philox(seed))
        chosen = first + random.choice(length - first, count, replace=False)
        return torch.from_numpy(np.sort(chosen).astype(np.int64))

    def score(self, value: float) -> None:
        """Longer episodes once these are known."""
        self.horizon.hear(value)

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
        self._groups = [
            _Group(first, horizon, position, self._episodes(first, horizon))
            for first, horizon, position in state["groups"]
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
