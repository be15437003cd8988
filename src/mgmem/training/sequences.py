"""The lesson of tasks that ask after their sequences: whole fresh ones, of few items first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, SequenceTask, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.feed import Growth, Horizon, OneHorizon, Share


@dataclass(frozen=True)
class Sequences:
    """Whole fresh sequences."""

    questions: int = 1
    """Questions about each training sequence, or as many as there are (recall tasks)."""
    growth: Growth | None = None

    def __post_init__(self) -> None:
        if self.questions < 1:
            raise UsageError(f"{self.questions} questions about a sequence: give at least 1")

    def feed(self, task: Task, stream: SeedStream, batch: int, share: Share) -> SequenceFeed:
        """Batches of ``batch`` sequences."""
        if not isinstance(task, SequenceTask):
            raise UsageError(f"{task.name} can not be practised on whole sequences")
        return SequenceFeed(self, task, stream, batch, share)

    def steps(self, task: Task) -> int:
        """Steps of an update once sequences have their whole length."""
        return task.episode_length


class SequenceFeed(OneHorizon):
    """Every batch is fresh sequences from their first step to their last."""

    carries_state = False
    _task: SequenceTask

    def __init__(
        self, lesson: Sequences, task: SequenceTask, stream: SeedStream, batch: int, share: Share
    ) -> None:
        self._lesson, self._task, self._stream = lesson, task, stream
        self._batch, self._share = batch, share
        self.horizon = Horizon(lesson.growth, task.episode_length)
        self._updates = 0
        self.steps = 0

    def next(self) -> Batch:
        """The next ``batch`` sequences, whole."""
        first, count = self._share.of(self._updates * self._batch, self._batch)
        task = self._task.practice(self.horizon.steps, self._lesson.questions)
        episodes = task.episodes(self._stream, first, count)
        self._updates += 1
        self.steps += episodes.length
        return episodes.batch(0, episodes.length)

    def state_dict(self) -> dict[str, Any]:
        """The number of batches so far, and how long they are."""
        return {"updates": self._updates, "steps": self.steps, **self.horizon.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._updates, self.steps = state["updates"], state["steps"]
        self.horizon.load_state_dict(state)
