"""What every task offers: shapes, numbered episodes cut into batches, a loss and a score.

A task makes batches and scores answers; it never sees a model. Tensors are time-major.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from mgmem.errors import UsageError
from mgmem.tasks.motion import MotionName
from mgmem.tasks.seeds import SeedStream, Split

Reads = Literal["during", "after", "within"]
"""When memory is queried: at any steps, after the episode, at places of the episode's own."""


@dataclass(frozen=True)
class Shapes:
    """Shapes of one step, without time and batch; one query and one answer shape per reader."""

    input: tuple[int, ...]
    queries: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Batch:
    """Steps of B episodes, with what is asked about them.

    inputs: (T, B, C, H, W) float32.
    reset: (T, B) bool, True where a sequence starts afresh; None: nowhere, these are steps of
        one episode each, and whoever starts an episode starts from a fresh state.
    times: (Q,) int64, non-decreasing; query q is asked once step times[q] has been written. Or
        (Q, B), where every sequence is asked at steps of its own.
    queries: one (Q, B, Cq, h, w) float32 per reader.
    targets: one per reader; (Q, B, *answer) float32 for bits, (Q, B) int64 for classes.
    weight: (R, Q, B) float32 for R readers, 0 where a query does not count; None: all count.
    episode: (B,) int64, the number of each episode in its stream; None: not known.
    lengths: (B,) int64, the steps of each sequence, after which it is padded; None: all T.
    """

    inputs: Tensor
    reset: Tensor | None
    times: Tensor
    queries: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    weight: Tensor | None = None
    episode: Tensor | None = None
    lengths: Tensor | None = None

    def counted(self) -> Tensor:
        """How many (reader, query, sequence) triples count: a scalar tensor."""
        if self.weight is not None:
            return self.weight.sum()
        total = sum(target.shape[0] * target.shape[1] for target in self.targets)
        return torch.tensor(float(total), device=self.inputs.device)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Batch(**tree_map_only(Tensor, lambda tensor: tensor.to(device), parts))


@dataclass(frozen=True)
class Estimate:
    """A measured value with the ends of its 95% confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Metric:
    """The metric that decides: its name among a score's results, and which way it should go."""

    name: str
    higher_is_better: bool

    def better(self, value: float, than: float | None) -> bool:
        """Whether ``value`` beats the best so far; anything beats nothing."""
        if than is None:
            return True
        return value > than if self.higher_is_better else value < than

    def meets(self, value: float, goal: float) -> bool:
        """Whether ``value`` is at least as good as ``goal``."""
        return value >= goal if self.higher_is_better else value <= goal


F = Metric("f", higher_is_better=True)
ERROR = Metric("error", higher_is_better=False)


class Score(Protocol):
    """Adds up answers over many batches."""

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """Take in the raw answers (logits) to a batch."""

    def result(self) -> dict[str, Estimate]:
        """Every metric over all that was added."""


class Episodes(Protocol):
    """A handful of episodes side by side."""

    @property
    def length(self) -> int:
        """Number of input steps of each episode."""

    def batch(self, start: int, stop: int, times: Tensor | None = None) -> Batch:
        """Steps start, ..., stop - 1 and the queries asked after some of them.

        times: (Q,) int64, relative to start, non-decreasing. None means the task's natural
        choice: a query after every step when it reads "during", all its queries in the piece
        that ends the episode (none in others) when it reads "after". What is asked at a step
        does not depend on how the episode is cut.
        """


class Task(Protocol):
    """A source of episodes and the judge of the answers to them."""

    @property
    def name(self) -> str:
        """Short name, for logs."""

    @property
    def reads(self) -> Reads:
        """Whether memory is queried during the episode, after it, or at places of its own."""

    @property
    def shapes(self) -> Shapes:
        """Shapes of inputs, queries and answers."""

    @property
    def episode_length(self) -> int:
        """Number of input steps of an episode."""

    def episodes(self, stream: SeedStream, first: int, count: int) -> Episodes:
        """Episodes first, ..., first + count - 1 of a stream."""

    @property
    def metric(self) -> Metric:
        """The metric that decides."""

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Mean loss per counted query: a scalar; 0 when none counts."""

    def new_score(self) -> Score:
        """An empty score."""


@runtime_checkable
class FiniteTask(Task, Protocol):
    """A task whose episodes are given, not made: there are only so many."""

    def size(self, split: Split) -> int:
        """Episodes of a split."""


@runtime_checkable
class SequenceTask(Task, Protocol):
    """A task that asks after its sequence, and can be practised on easier ones."""

    def practice(self, length: int, questions: int) -> SequenceTask:
        """For training: sequences of ``length`` items, at most ``questions`` about each.

        Tasks whose answer is a whole sequence always ask for all of it.
        """


@runtime_checkable
class WalkTask(Task, Protocol):
    """A task that asks during long episodes, and can be practised on parts of them."""

    def practised(
        self, stretch: int | None, rare: float, foreign: float, motion: MotionName | None
    ) -> WalkTask:
        """For training: ``stretch`` steps from anywhere (None: the whole), rarer queries.

        rare: share of the queries that do not follow what is common in the episode.
        foreign: share of the queries for what may not have been in the episode.
        motion: another than the task's own; None: that one.
        """


def check_piece(start: int, stop: int, length: int) -> None:
    """Refuse a piece that is not within an episode."""
    if not 0 <= start < stop <= length:
        raise UsageError(
            f"steps {start} to {stop} were asked for, but episodes have {length} steps: "
            f"give 0 <= start < stop <= {length}"
        )


def check_times(times: Tensor, steps: int) -> Tensor:
    """Query times as a (Q,) int64 tensor on the CPU, refused unless sorted and within the steps."""
    times = torch.as_tensor(times, dtype=torch.int64, device="cpu")
    if times.dim() != 1:
        raise UsageError(f"query times have shape {tuple(times.shape)}: give one dimension")
    if len(times) and (times[0] < 0 or times[-1] >= steps or bool((times.diff() < 0).any())):
        raise UsageError(
            f"query times {times.tolist()} do not fit a piece of {steps} steps: "
            f"give non-decreasing steps between 0 and {steps - 1}"
        )
    return times


def check_questions(questions: int, length: int) -> None:
    """A list of ``length`` items has one question less: which item followed this one?"""
    if not 1 <= questions < length:
        raise UsageError(f"{questions} questions about {length} items: give 1 to {length - 1}")
