"""How to train: where weights start, and the stages that they go through.

Everything that decides the numbers apart from task, model and seed. Each part is a small type that
holds only what it uses; the command line changes any of it and refuses what is not there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import tyro

from mgmem.errors import UsageError
from mgmem.nn.conv import Init
from mgmem.training.optim import AdamW, Muon, OptimizerChoice, RMSprop
from mgmem.training.rate import Rate
from mgmem.training.sequences import Sequences
from mgmem.training.stories import Stories
from mgmem.training.walks import Walks

Lesson = Sequences | Walks | Stories


@dataclass(frozen=True)
class Fresh:
    """Random weights."""

    init: Init = "he"
    """How MG-conv layers start: scaled for ReLUs, or narrower, as in the reference."""


@dataclass(frozen=True)
class Shipped:
    """The shipped weights of another experiment, these and no others."""

    experiment: str
    sha256: str
    """Checksum of the weights, as their file states it: others would give another figure."""
    parts: tuple[str, ...] = ()
    """Only tensors whose names begin so, the rest being fresh; none: all."""


@dataclass(frozen=True)
class Grown:
    """The shipped weights of a smaller network inside a larger one; what is new starts fresh."""

    experiment: str
    sha256: str
    """Checksum of the smaller network's weights, as their file states it."""
    inputs: tuple[float, ...] = ()
    """Factors of what comes in by each channel, where the larger network is told it in another
    measure; none: as it is."""


Start = Fresh | Shipped | Grown


@dataclass(frozen=True)
class Validation:
    """How often the weights are scored on validation episodes, and on how many."""

    every: int = 500
    """Updates between evaluations."""
    episodes: int = 128
    """Validation episodes in each of them."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.episodes < 1:
            raise UsageError(
                f"validation every {self.every} updates on {self.episodes} episodes: give at "
                "least 1 of both"
            )


@dataclass(frozen=True)
class Stage:
    """A part of training with a lesson, an optimiser and a schedule of its own."""

    name: tyro.conf.Suppress[str]
    lesson: Lesson
    optimizer: OptimizerChoice
    updates: int = 10_000
    """Length of the stage in optimiser updates."""
    until_whole: bool = False
    """End the stage before that, as soon as growing episodes have their whole length."""
    batch: int = 32
    """Sequences trained side by side, over all processes."""
    rate: Rate = field(default_factory=Rate)
    clip: float = 1.0
    """Largest norm of the whole gradient; 0: no clipping."""
    average: float = 0.0
    """Decay of the exponential moving average of weights that is evaluated; 0: none."""
    validation: Validation = field(default_factory=Validation)
    hands_on: Literal["best", "last"] = "last"
    """Weights that the next stage begins with: the best by validation score, or the last."""
    learns: tuple[str, ...] = ()
    """Only tensors whose names begin so are trained, such as readers. on a memory that is known;
    none: all."""

    def __post_init__(self) -> None:
        if self.updates < 1 or self.batch < 1:
            raise UsageError(
                f"stage {self.name} has {self.updates} updates and a batch of {self.batch}: give "
                "at least 1 of both"
            )
        if not 0 <= self.average < 1:
            raise UsageError(f"average is {self.average}: give a decay in [0, 1)")
        if not 0 <= self.clip < float("inf"):
            raise UsageError(f"clip is {self.clip}: give a finite norm, or 0 for none")


@dataclass(frozen=True)
class Recipe:
    """Where training starts and what it goes through; the same seed gives the same weights."""

    stages: tuple[Stage, ...]
    start: Start = field(default_factory=Fresh)

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"stages {names}: give at least one, each with a name of its own")

    @property
    def updates(self) -> int:
        """Updates of all stages, should none end early."""
        return sum(stage.updates for stage in self.stages)

    def plain(self) -> dict[str, Any]:
        """The recipe as JSON holds it; types that a setting chooses among are named."""
        plain: dict[str, Any] = _plain(self)
        return plain


_CHOICES = (Fresh, Shipped, Grown, AdamW, Muon, RMSprop)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        named = isinstance(value, _CHOICES) or hasattr(value, "feed")
        return {"kind": type(value).__name__, **parts} if named else parts
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


def flattened(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """("stages.0.rate.peak", 0.003) and so on: every setting of a plain recipe by its path."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from flattened(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list):
        for index, value in enumerate(plain):
            yield from flattened(value, f"{path}.{index}")
    else:
        yield path, plain
