"""An experiment: a task, a model, two recipes, and what the paper says of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mgmem.errors import UsageError
from mgmem.model import Model
from mgmem.nn.conv import Init, MultigridConv
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
    model: Callable[[Task], Model]
    fast: Recipe
    paper: Recipe
    row: PaperRow | None = None

    def recipe(self, name: str) -> Recipe:
        """The recipe called "fast" (ours) or "paper" (faithful)."""
        if name not in ("fast", "paper"):
            raise UsageError(f"no recipe {name!r}: there are fast and paper")
        return self.fast if name == "fast" else self.paper

    def build(
        self, seed: int = 0, options: Mapping[str, str] | None = None, init: Init = "he"
    ) -> tuple[Task, Model]:
        """The task and a freshly initialised model; the same seed gives the same weights.

        ``options`` change fields of the task, as text: ``{"world": "13", "queries": "3,9"}``.
        ``init``: how MG-conv layers start.
        """
        task = _changed(self.task(), options or {})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.model(task)
            if init != "he":  # what the library starts with
                torch.manual_seed(seed)
                for module in model.modules():
                    if isinstance(module, MultigridConv):
                        module.reset_parameters(init)
        return task, model


def _changed(task: Task, options: Mapping[str, str]) -> Task:
    """The task with some fields given as text; what can not be is an error naming the field."""
    if not options:
        return task
    assert dataclasses.is_dataclass(task)
    known = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    optional = {field.name for field in dataclasses.fields(task) if field.default is None}
    for name in options:
        if name not in known:
            raise UsageError(f"task {task.name} has no option {name!r}; it has {', '.join(known)}")
    changes = {
        name: None if text == "none" and name in optional else _read(name, text, known[name])
        for name, text in options.items()
    }
    return dataclasses.replace(task, **changes)


def _read(name: str, text: str, like: Any) -> Any:
    """Text as a value of the kind that the field has now."""
    if isinstance(like, bool):
        if text.lower() not in ("true", "false"):
            raise UsageError(f"task option {name}={text}: give true or false")
        return text.lower() == "true"
    try:
        if isinstance(like, tuple):
            return tuple(int(part) for part in text.split(","))
        # Fields that are None by default hold numbers.
        return text if isinstance(like, str) else float(text) if "." in text else int(text)
    except ValueError:
        raise UsageError(f"task option {name}={text}: give a value like {like!r}") from None


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers of a model."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
