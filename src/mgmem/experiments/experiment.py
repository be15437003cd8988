"""An experiment: a task, a model, two recipes, and what the paper says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from mgmem.errors import UsageError
from mgmem.tasks.base import Task
from mgmem.training.recipe import Recipe


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's tables."""

    table: int
    parameters: float
    """Parameters in millions, as printed."""
    memory: float
    """Memory in thousands, as printed."""
    figures: dict[str, float] = field(default_factory=dict)
    """Metric to value: precision, recall and f as shares, error as a rate."""


@dataclass(frozen=True)
class Experiment:
    """A named, re-runnable, measured thing."""

    name: str
    title: str
    system: str
    task: Callable[[], Task]
    model: Callable[[Task], nn.Module]
    fast: Recipe
    paper: Recipe
    row: PaperRow | None = None

    def recipe(self, name: str) -> Recipe:
        """The recipe called "fast" (ours) or "paper" (faithful)."""
        if name not in ("fast", "paper"):
            raise UsageError(f"no recipe {name!r}: there are fast and paper")
        return self.fast if name == "fast" else self.paper

    def build(self, seed: int = 0) -> tuple[Task, nn.Module]:
        """The task and a freshly initialised model; the same seed gives the same weights."""
        task = self.task()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return task, self.model(task)


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers of a model."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
