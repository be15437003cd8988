"""What training starts with: fresh weights, those of another experiment, or a row's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.experiments.experiment import Experiment
from mgmem.experiments.records import Record
from mgmem.experiments.registry import find
from mgmem.experiments.trained import load, locate
from mgmem.model import Model
from mgmem.nn import ReadWrite
from mgmem.nn.conv import MultigridConv
from mgmem.nn.growing import grow
from mgmem.nn.reader import MultigridReader
from mgmem.nn.varying import vary
from mgmem.tasks.base import Task, WalkTask
from mgmem.tasks.seeds import SeedStream
from mgmem.training.content import Budget, Progress
from mgmem.training.recipe import Fresh, Grown, Recipe, Shipped, Start
from mgmem.training.weights import Weights, fill, load_weights

# Episodes by which a large network's fresh weights are scaled.
_PROBE = SeedStream(123, "train")
_PROBE_STEPS = 13
_PROBE_EPISODES = 32


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
    start: Start,
    options: Mapping[str, str] | None = None,
) -> Beginning:
    """Task and model as training starts with them, and what their weights have already taken."""
    if isinstance(start, Fresh):
        return Beginning(*experiment.build(seed, options, start.init), Progress())
    task, model = experiment.build(seed, options)
    path, weights = _start(start)
    if isinstance(start, Grown):
        _grow(task, model, start, path, weights)
        return Beginning(task, model, _after(weights))
    tensors = weights.tensors
    if start.parts:
        taken = {n: t for n, t in tensors.items() if n.startswith(start.parts)}
        tensors = {**model.state_dict(), **taken}
    fill(model, tensors, path)
    return Beginning(task, model, _after(weights))


def resume(
    experiment: Experiment, seed: int, options: Mapping[str, str] | None, content: dict[str, Any]
) -> Beginning:
    """Task and model for a checkpoint to fill: its content says which weights it went on after."""
    task, model = experiment.build(seed, options)
    return Beginning(task, model, Progress(), content.get("about", {}).get("after", {}))


def _after(weights: Weights) -> Progress:
    """None of its own, after what the weights that it starts with took."""
    return Progress(before=weights.about.get("trained", asdict(Budget())))


def _grow(task: Task, model: Model, start: Grown, path: Path, weights: Weights) -> None:
    """Start with a smaller network's weights, the rest so that it varies with what is seen."""
    _, smaller = find(start.experiment).build()
    if not _grows(model) or not _grows(smaller):
        raise UsageError(
            f"{task.name} does not start from a smaller network: a memory with readers does"
        )
    fill(smaller, weights.tensors, path)
    seen = _probe(task)
    if isinstance(task, WalkTask):
        _answer_seldom(model, task)
    vary(model.memory, seen)
    grow(model, smaller, start.inputs)
    vary(model.memory, seen, first=len(smaller.memory.layers))


def _grows(model: Model) -> TypeGuard[ReadWrite]:
    return isinstance(model, ReadWrite)


def _probe(task: Task) -> Tensor:
    """(time, batch, channels, *space): what a network is told at the beginning of episodes."""
    if isinstance(task, WalkTask):
        task = task.practised(_PROBE_STEPS, 0.0, 0.0, None)
    steps = min(_PROBE_STEPS, task.episode_length)
    return task.episodes(_PROBE, 0, _PROBE_EPISODES).batch(0, steps).inputs


@torch.no_grad()
def _answer_seldom(model: ReadWrite, task: Task) -> None:
    """Readers start by marking a place in all, or hundreds of updates go into marking none."""
    for reader, shape in zip(model.readers, task.shapes.answers, strict=True):
        last = cast("MultigridReader", reader).layers[-1]
        cast("MultigridConv", last).biases[0].fill_(-math.log(math.prod(shape)))
        cast("MultigridConv", last).weights[0].mul_(0.1)


def _start(start: Shipped | Grown) -> tuple[Path, Weights]:
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
    if not isinstance(recipe.start, Fresh):
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
