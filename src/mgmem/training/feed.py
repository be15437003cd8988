"""What the loop trains on next, and how long its episodes are for now.

A lesson (``sequences.py``, ``walks.py``) is a description that makes a feed. A feed is a pure
function of its position: the same position gives the same batch, so saving the position is all
that resuming needs. With several processes each takes its share of every group of sequences;
together they see exactly the batch that one process would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Task


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


class Growing(Protocol):
    """How long episodes are for now; as text, how near they are to growing."""

    @property
    def growing(self) -> int | None:
        """The length while it grows; None once it is the whole, or where growth ends."""


class Feed(Protocol):
    """A source of batches with a position that can be saved."""

    carries_state: bool
    """Whether the memory goes on from batch to batch."""
    steps: int
    """Time steps of each of the batch's sequences so far."""

    @property
    def horizon(self) -> Growing:
        """The length of episodes, which may grow."""

    def next(self) -> Batch:
        """The next batch."""

    def marks(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """(parts, 2): how well each part of the lesson was answered, from 0 to 1, times how much
        of it was asked; and how much that is.
        """

    def hear(self, marks: Tensor) -> None:
        """Hear the marks of the last batch, those of all processes added up."""

    def state_dict(self) -> dict[str, Any]:
        """The position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""


@dataclass(frozen=True)
class Growth:
    """Episodes that start short and lengthen as learning allows."""

    start: int
    """Steps, or items, at the beginning."""
    factor: float = 1.25
    """By how much they lengthen each time the goal is met."""
    goal: float = 0.8
    """Score on training queries (F, or 1 - error) at which they do."""
    end: int | None = None
    """Where growth ends, for a later stage to go on from; None: at the whole length."""

    def __post_init__(self) -> None:
        if self.end is not None and self.end < self.start:
            raise UsageError(f"growth from {self.start} to {self.end}: give an end after the start")
        if self.start < 1 or not 1 < self.factor < math.inf or not 0 <= self.goal <= 1:
            raise UsageError(
                f"growth from {self.start} by {self.factor} at {self.goal}: give a start of at "
                "least 1, a factor above 1 and a goal from 0 to 1"
            )


class Horizon:
    """How long episodes are for now.

    Short memories are learned first, and each stretch only once the one before is known.
    """

    _score_decay = 0.95

    def __init__(self, growth: Growth | None, full: int) -> None:
        self._growth = growth
        self._full = full if growth is None or growth.end is None else min(growth.end, full)
        self.start = full if growth is None else min(growth.start, full)
        self.steps = self.start
        self.score = 0.0
        """How well training queries are answered, smoothed; it counts where episodes grow."""

    @property
    def growing(self) -> int | None:
        """The length while it grows; None once it is the whole, or where growth ends."""
        return self.steps if self.steps < self._full else None

    def __str__(self) -> str:
        if self._growth is None or self.growing is None:
            return ""
        return f"horizon {self.steps} (score {self.score:.2f} of {self._growth.goal:g})"

    def hear(self, score: float, weight: float = 1.0) -> None:
        """Grow once the smoothed score on training queries meets the goal."""
        if self._growth is None:
            return
        self.score += (1 - self._score_decay**weight) * (score - self.score)
        if self.steps < self._full and self.score >= self._growth.goal:
            self.steps = min(self._full, math.ceil(self.steps * self._growth.factor))
            # The new stretch has to be learned before the next: the score starts lower again.
            self.score = 0.9 * self._growth.goal

    def state_dict(self) -> dict[str, Any]:
        """Length and score so far."""
        return {"horizon": self.steps, "smoothed": self.score}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if not 1 <= state["horizon"] <= self._full:
            raise UsageError(f"episodes of {state['horizon']} steps; they have 1 to {self._full}")
        self.steps, self.score = state["horizon"], state["smoothed"]


class OneHorizon:
    """Marks of feeds whose episodes all have one length."""

    _task: Task
    horizon: Horizon

    def marks(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """(1, 2): the task's deciding metric, from 0 to 1, times the answers that count."""
        counted, value = float(batch.counted()), 0.0
        if counted:
            score, metric = self._task.new_score(), self._task.metric
            score.add(answers, batch)
            value = score.result()[metric.name].value
            value = value if metric.higher_is_better else 1 - value
        return torch.tensor([[value * counted, counted]])

    def hear(self, marks: Tensor) -> None:
        """Longer episodes once these are known."""
        right, counted = marks[0].tolist()
        if counted:
            self.horizon.hear(right / counted)
