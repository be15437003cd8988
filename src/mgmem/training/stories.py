"""Learning from a finite number of stories: epochs, shuffled anew each time.

Every task gives as many questions as any other, however many stories they are in, unless it has so
few that they would only be learned by heart, or is known. Stories are drawn some hundreds at a time
and put beside others of their length, so that little is read past an end. Stories that grow do so
task by task: what is hard in one does not hold back the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.babi import Babi
from mgmem.tasks.babi_data import TASKS, Ints
from mgmem.tasks.babi_data import Stories as Told
from mgmem.tasks.babi_names import renaming
from mgmem.tasks.base import Batch, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.feed import Growth, Horizon, Share

_ASKING = 0.25
"""Share of a task's stories that ask something within the words they begin with, at least."""
_HEARD = 8
"""Questions of a task that weigh as much as a batch elsewhere in its smoothed score."""
_RENAMED = 100
"""Random numbers of names, apart from those of pools and tasks."""
_NEED = 2.5
"""A task's share of questions grows with its error, so many times as fast, up to the whole."""
_PATIENCE = 20_000
"""Questions after which the next task no longer waits for one that does not grow."""


@dataclass(frozen=True)
class Stories:
    """The lesson: whole stories, with all their questions."""

    words: int = 2_000
    """Words in a batch, about; long stories come in smaller batches."""
    fewest: int = 16
    """Stories in a batch, at least."""
    pool: int = 160
    """Questions of each task that are drawn at once and sorted by length."""
    repeat: float = 2.0
    """How often a story is read, at most, while a task of many questions is read once."""
    rehearsed: float = 0.1
    """Questions of a task whose answers come out right, as a share of the others'; with growth."""
    order: tuple[int, ...] = tuple(range(1, TASKS + 1))
    """Tasks that join one at a time, each when the one before it has grown; then all others join,
    at once. With growth."""
    renamed: bool = False
    """Tell every story with other names, places and things of its task each time it is read."""
    longest: int = 800
    """Stories are cut after their last answer within so many words."""
    growth: Growth | None = None
    """Fewer words at first, and more of a task as its questions come out right."""

    def __post_init__(self) -> None:
        for name in ("words", "fewest", "pool", "longest"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give at least 1")
        if not self.repeat > 0:
            raise UsageError(f"repeat is {self.repeat}: give a number above 0")
        if len(set(self.order) & set(range(1, TASKS + 1))) < len(self.order):
            raise UsageError(f"order is {self.order}: name any of 1 to {TASKS}, each once")
        if not 0 < self.rehearsed <= 1:
            raise UsageError(f"rehearsed is {self.rehearsed}: give a share above 0, up to 1")

    def feed(self, task: Task, stream: SeedStream, batch: int, share: Share) -> StoryFeed:
        """Batches of at most ``batch`` stories."""
        if not isinstance(task, Babi):
            raise UsageError(f"{task.name} tells no stories; babi does")
        if batch < self.fewest or self.fewest % share.world:
            raise UsageError(
                f"batches of {self.fewest} to {batch} stories for {share.world} processes: give "
                "at least the fewest, which has to be a multiple of the processes"
            )
        return StoryFeed(self, task, stream, batch, share)

    def steps(self, task: Task) -> int:
        """Words of a story, about; more than that in few of them."""
        return self.words // self.fewest

    def pools_per_epoch(self, task: Babi) -> float:
        """How many pools there are until a task of many questions has been read once."""
        stories = task.stories("train")
        return float(np.bincount(stories.task, stories.questions).max()) / self.pool


class StoryFeed:
    """A pure function of its position: which of a pool's batches were given; and of what is decided
    when a pool begins: how long its stories are, how many of each task, and after how many others.
    """

    carries_state = False

    def __init__(
        self, lesson: Stories, task: Babi, stream: SeedStream, batch: int, share: Share
    ) -> None:
        self._lesson, self._task, self._stream = lesson, task, stream
        self._stories = task.stories(stream.split)
        self._most, self._share = batch, share
        self.horizon = TaskHorizons(lesson, self._stories, task.tasks)
        self._pool, self._given = 0, 0
        self._drawn = [0.0] * TASKS
        self._limits, self._numbers = self._plan()
        self._batches: list[Ints] | None = None
        self.steps = 0
        """Words of each of the batches' longest stories."""

    def next(self) -> Batch:
        """The next batch of stories, whole."""
        if self._batches is None:
            self._batches = self._cut_pool()
        chosen = self._batches[self._given][self._share.rank :: self._share.world]
        said = self._renamed(chosen) if self._lesson.renamed else None
        episodes = self._task.chosen(self._stream.split, chosen, self._limits, said)
        self._given += 1
        if self._given == len(self._batches):
            self._pool, self._given, self._batches = self._pool + 1, 0, None
            self._drawn = [a + b for a, b in zip(self._drawn, self._numbers, strict=True)]
            self._limits, self._numbers = self._plan()
        self.steps += episodes.length
        return episodes.batch(0, episodes.length)

    def _plan(self) -> tuple[tuple[int, ...], list[float]]:
        """Of each task, how long the next pool's stories are, and how many, on average."""
        lesson, limits = self._lesson, self.horizon.limits
        asked = self._stories.asked(limits)
        most = np.bincount(self._stories.task, self._stories.questions).max()
        numbers = [0.0] * TASKS
        for task in self._task.tasks:
            own = self._stories.task == task
            unknown = 1.0 if lesson.growth is None else _NEED * (1 - self.horizon.score(task))
            weight = max(lesson.rehearsed, min(1.0, unknown))
            if count := int(asked[own].sum()):
                share = min(weight / count, lesson.repeat / most)
                numbers[task - 1] = float(lesson.pool * own.sum() * share)
        return limits, numbers

    def marks(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """(tasks, 2): right questions of each task, and questions."""
        marks, score = torch.zeros(TASKS, 2), self._task.new_score()
        score.add(answers, batch)
        for task, (wrong, asked, *_) in score.by_task().items():
            marks[task - 1] = torch.tensor([asked.sum() - wrong.sum(), asked.sum()])
        return marks

    def hear(self, marks: Tensor) -> None:
        """Longer stories of a task, from the next pool on, once these are known."""
        self.horizon.hear(marks)

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {
            "pool": self._pool,
            "given": self._given,
            "steps": self.steps,
            "limits": list(self._limits),
            "numbers": self._numbers,
            "drawn": self._drawn,
            "horizons": self.horizon.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._pool, self._given, self.steps = state["pool"], state["given"], state["steps"]
        self._limits, self._batches = tuple(state["limits"]), None
        self._numbers, self._drawn = state["numbers"], state["drawn"]
        self.horizon.load_state_dict(state["horizons"])

    def _cut_pool(self) -> list[Ints]:
        """Numbers of the stories of every batch of the pool."""
        world = self._share.world
        random = self._random(0, self._pool)
        numbers = np.concatenate([self._draw(task) for task in self._task.tasks])
        lengths = self._stories.cut(self._limits)
        numbers = random.permutation(numbers[lengths[numbers] > 0])
        numbers = numbers[: len(numbers) // world * world]
        order = numbers[np.argsort(lengths[numbers], kind="stable")]
        batches, start = [], 0
        while start < len(order):
            stop = start + self._count(lengths[order[start:]])
            batches.append(order[start:stop])
            start = stop
        return [batches[i] for i in random.permutation(len(batches))]

    def _count(self, lengths: Ints) -> int:
        """How many of the stories left, short ones first, make the next batch."""
        lesson, world = self._lesson, self._share.world
        counts = np.arange(1, 1 + min(len(lengths), self._most))
        fitting = int((counts * lengths[: len(counts)] <= lesson.words).sum())
        count = max(lesson.fewest, fitting // world * world)
        return len(lengths) if len(lengths) - count < lesson.fewest else count

    def _draw(self, task: int) -> Ints:
        """Numbers of a task's stories that belong to the pool: its share of endless epochs."""
        own = np.flatnonzero(self._stories.task == task)
        first, count = self._drawn[task - 1], self._numbers[task - 1]
        drawn = np.arange(int(first), int(first + count))
        epoch, place = np.divmod(drawn, len(own))
        orders = {e: self._random(task, e).permutation(own) for e in np.unique(epoch).tolist()}
        return np.array([orders[e][i] for e, i in zip(epoch, place, strict=True)], np.int64)

    def _renamed(self, chosen: Ints) -> Ints:
        """(stories, vocabulary): what each of a batch's stories says for each word."""
        tasks = self._stories.task[chosen].tolist()
        drawn = (self._random(_RENAMED, self._pool, number) for number in chosen.tolist())
        return np.stack([renaming(task, own) for task, own in zip(tasks, drawn, strict=True)])

    def _random(self, *key: int) -> np.random.Generator:
        seed = np.random.SeedSequence(self._stream.root, spawn_key=key)
        return np.random.Generator(np.random.Philox(seed))


class TaskHorizons:
    """How long the stories of every task are for now.

    A task begins with the words within which some of its stories ask something, and grows as its
    answers come out right. Tasks of the lesson's order join one at a time, each when the one before
    has grown: a new task is asked most. One that does not grow is not waited for without end.
    """

    def __init__(self, lesson: Stories, stories: Told, tasks: Sequence[int]) -> None:
        growth = lesson.growth
        self._goal = 0.0 if growth is None else growth.goal
        self._of: dict[int, Horizon] = {}
        self._waited_for = [task for task in lesson.order if task in tasks]
        order = [*self._waited_for, *(task for task in tasks if task not in lesson.order)]
        self._heard = dict.fromkeys(order, 0)
        for task in order:
            own = stories.task == task
            whole = min(lesson.longest, int(stories.lengths[own].max()))
            asking = int(np.quantile(stories.soonest[own], _ASKING))
            start = None if growth is None else replace(growth, start=max(growth.start, asking))
            self._of[task] = Horizon(start, whole)

    @property
    def limits(self) -> tuple[int, ...]:
        """Words of each task's stories; those of a task that waits have none."""
        limits = [0] * TASKS
        for task in self._begun():
            limits[task - 1] = self._of[task].steps
        return tuple(limits)

    def score(self, task: int) -> float:
        """How well a task's questions are answered, while its stories grow and after."""
        return self._of[task].score

    def _begun(self) -> list[int]:
        """Tasks that do not wait."""
        for place, task in enumerate(self._waited_for, 1):
            horizon = self._of[task]
            known = horizon.steps > horizon.start or horizon.score >= self._goal
            if not known and self._heard[task] < _PATIENCE:
                return self._waited_for[:place]
        return list(self._of)

    @property
    def growing(self) -> int | None:
        """Words of the shortest stories that still grow; None once all are whole."""
        left = [horizon.growing for horizon in self._of.values()]
        return min((steps for steps in left if steps is not None), default=None)

    def __str__(self) -> str:
        if self.growing is None:
            return ""
        begun = self._begun()
        left = {task: h.growing for task, h in self._of.items() if task in begun and h.growing}
        words = ", ".join(f"{task}:{steps}" for task, steps in left.items())
        return f"{len(begun) - len(left)} of {len(self._of)} tasks whole, words of others {words}"

    def hear(self, marks: Tensor) -> None:
        """Right questions of each task, and questions: (tasks, 2)."""
        for task, horizon in self._of.items():
            right, asked = marks[task - 1].tolist()
            if asked:
                horizon.hear(right / asked, asked / _HEARD)
                self._heard[task] += int(asked)

    def state_dict(self) -> dict[str, Any]:
        """Length, score and questions so far of each task."""
        return {
            str(task): {**horizon.state_dict(), "heard": self._heard[task]}
            for task, horizon in self._of.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for task, horizon in self._of.items():
            horizon.load_state_dict(state[str(task)])
            self._heard[task] = state[str(task)]["heard"]
