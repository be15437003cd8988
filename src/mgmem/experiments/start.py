"""What training starts with: fresh weights, those of another experiment, or a row's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mgmem.errors import UsageError
from mgmem.experiments.experiment import Experiment
from mgmem.experiments.records import Record
from mgmem.experiments.trained import load, locate
from mgmem.model import Model
from mgmem.tasks.base import Task
from mgmem.training.content import Budget, Progress
from mgmem.training.recipe import Fresh, Recipe, Shipped
from mgmem.training.weights import Weights, fill, load_weights


@dataclass(frozen=True)
class Beginning:
    """What training begins with."""

    task: Task
    model: Model
    progress: Progress
    after: dict[str, Any] = field(default_factory=dict)
    """Of weights that go on: their checksum, and the commands that trained them."""


def begin(
    experiment: Experiment,
    seed: int,
    start: Fresh | Shipped,
    options: Mapping[str, str] | None = None,
) -> Beginning:
    """Task and model as training starts with them, and what their weights have already taken."""
    if isinstance(start, Fresh):
        return Beginning(*experiment.build(seed, options, start.init), Progress())
    task, model = experiment.build(seed, options)
    path, weights = _start(start)
    tensors = weights.tensors
    if start.parts:
        taken = {n: t for n, t in tensors.items() if n.startswith(start.parts)}
        tensors = {**model.state_dict(), **taken}
    fill(model, tensors, path)
    return Beginning(task, model, Progress(before=weights.about.get("trained", asdict(Budget()))))


def _start(start: Shipped) -> tuple[Path, Weights]:
    """The weights that a recipe starts from, and where they are."""
    path = locate(start.experiment)
    weights = load_weights(path)
    if weights.sha256 != start.sha256:
        raise UsageError(
            f"this recipe starts from weights of {start.experiment} with checksum "
            f"{start.sha256[:12]}…, but those shipped have {weights.sha256[:12]}…: another start "
            "gives another result; name theirs with --start.sha256 if that is meant"
        )
    return path, weights


def go_on(experiment: Experiment, name: str, seed: int, recipe: Recipe) -> Beginning:
    """Begin with the shipped weights of this very row, at the first stage that they have not seen.

    name: of the recipe. Stages that their record holds must be the recipe's first ones.
    """
    shipped = load(experiment.name)
    record = shipped.record
    if record is None or record.schema < 2 or shipped.about.get("task"):
        raise UsageError(f"the shipped weights of {experiment.name} have no record to go on from")
    first = _stages_seen(record, name, seed, recipe)
    started = 0
    if isinstance(recipe.start, Shipped):
        started = _start(recipe.start)[1].about.get("trained", {}).get("updates", 0)
    progress = Progress(
        stage=first,
        updates=record.updates - started,
        before=asdict(Budget(record.updates, record.steps, record.seconds)),
        best=record.best_validation,
        curve=list(record.curve),
    )
    after = {"weights": shipped.sha256, "commands": record.commands}
    return Beginning(shipped.task, shipped.model.train(), progress, after)


def _stages_seen(record: Record, name: str, seed: int, recipe: Recipe) -> int:
    """How many of a recipe's stages recorded weights went through; an error if all, or others."""
    now, then = recipe.plain(), record.settings
    past = then["stages"]
    same = (record.recipe, record.seed, then["start"]) == (name, seed, now["start"])
    if not same or now["stages"][: len(past)] != past or "--max-updates" in record.commands[-1]:
        raise UsageError(
            f"the shipped weights of {record.experiment} were trained with other settings (recipe "
            f"{record.recipe}, seed {record.seed}; their record holds all), or not to the end: "
            "train without --go-on"
        )
    if len(now["stages"]) == len(past):
        raise UsageError(f"the shipped weights of {record.experiment} have seen all of the recipe")
    return len(past)
