"""Trained models by name: what ``mgmem.load`` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from mgmem.errors import UsageError
from mgmem.experiments.experiment import Experiment
from mgmem.experiments.records import Record, load_records, shipped_weights
from mgmem.experiments.registry import EXPERIMENTS, find
from mgmem.model import Model
from mgmem.tasks.base import Task
from mgmem.training.weights import fill, load_weights


@dataclass(frozen=True)
class Trained:
    """A model with its weights, and what they are about."""

    model: Model
    task: Task
    experiment: Experiment
    record: Record | None
    """Of these weights, if their evaluation was recorded."""
    path: Path
    about: dict[str, Any]
    """What the weights say of themselves: experiment, recipe, seed, budget."""
    sha256: str


def load(
    what: str | PathLike[str],
    device: str | torch.device = "cpu",
    task: Mapping[str, str] | None = None,
) -> Trained:
    """Trained weights as a model that answers.

    what: an experiment's name (its shipped weights), a run folder (its best weights) or a file.
    task: changes to the task they were trained on, as text, such as ``{"motion": "random"}``.
    """
    path = locate(what)
    weights = load_weights(path)
    experiment = find(weights.about["experiment"])
    trained_on = weights.about.get("task") or {}
    changed, model = experiment.build(options={**trained_on, **(task or {})})
    fill(model, weights.tensors, path)
    return Trained(
        model.to(device).eval(),
        changed,
        experiment,
        next((record for record in load_records() if record.weights == weights.sha256), None),
        path,
        weights.about,
        weights.sha256,
    )


def locate(what: str | PathLike[str]) -> Path:
    """The weights file meant by a name, a run folder or a path."""
    if str(what) in EXPERIMENTS:
        shipped = shipped_weights(str(what))
        if shipped is None:
            raise UsageError(f"no weights are shipped for {what}: `mgmem train {what}` makes some")
        return shipped
    path = Path(what)
    if path.is_dir():
        if not (path / "best.safetensors").is_file():
            raise UsageError(f"{path} holds no best.safetensors: let it train until it evaluates")
        return path / "best.safetensors"
    if path.exists():
        return path
    find(str(what))  # an unknown name: says which is nearest
    raise UsageError(f"{what}: no such experiment, run folder or file")
