"""Trained agents: from a run folder or a file, or shipped with the package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgmem.errors import UsageError
from mgmem.experiments import explore
from mgmem.experiments import records as rec
from mgmem.experiments.experiment import count_parameters
from mgmem.experiments.explore import Exploration, Mapper, System
from mgmem.experiments.explore_records import load_walk_records
from mgmem.rl.agent import Agent
from mgmem.training import checkpoint
from mgmem.training.weights import fill, load_weights, save_weights

_ENOUGH_WALKS = 1000


@dataclass(frozen=True)
class TrainedAgent:
    """An agent that has learned, and what a record says of how."""

    agent: Agent
    system: System
    history: dict[str, Any]
    """Command, settings, parameters, budget and curve."""
    file: Path


def load_agent(exploration: Exploration, mapper: Mapper, path: Path | None) -> TrainedAgent:
    """From its run folder or weights file; None: the one that is shipped."""
    file = _locate(exploration, path)
    weights = load_weights(file)
    about = dict(weights.about)
    if about["experiment"] != exploration.name:
        raise UsageError(f"{file} belongs to {about['experiment']}, not {exploration.name}")
    system: System = about["system"]
    if system == "memory" and about["memory_digest"] != mapper.digest:
        raise UsageError(
            f"{file} was trained on the memory of {about['memory']}, not on that of "
            f"{exploration.memory} as it is here: give its own as --memory"
        )
    shaped = replace(
        exploration, window=about["window"], reader=about["reader"], width=about["width"]
    )
    policy = explore.make_policy(shaped, system, mapper, 0)
    fill(policy, weights.tensors, file)
    agent = explore.make_agent(shaped, system, mapper, policy, seed=0)
    trained = about.pop("trained")
    history = {
        "command": about.pop("command"),
        "about": about,
        "parameters": count_parameters(policy),
        "updates": trained["updates"],
        "steps": trained["steps"],
        "seconds": trained["seconds"],
        "curve": _curve(exploration, system, None if path is None else file.parent),
    }
    return TrainedAgent(agent, system, history, file)


def _locate(exploration: Exploration, path: Path | None) -> Path:
    if path is None:
        shipped = rec.shipped_weights(exploration.name)
        if shipped is None:
            name = exploration.name
            raise UsageError(f"no agent is shipped for {name}: `mgmem train {name}` makes one")
        return shipped
    file = path / "best.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{path}: no run folder with best weights, and no weights file")
    return file


def _curve(exploration: Exploration, system: System, folder: Path | None) -> list[dict[str, float]]:
    """Validation metrics over training: from the run, or from the shipped agent's record."""
    if folder is None:
        records = load_walk_records(exploration.name)
        return next((record.curve for record in records if record.walker == system), [])
    content, _ = checkpoint.newest(folder)
    curve: list[dict[str, float]] = [] if content is None else content["progress"]["curve"]
    return curve


def publish(exploration: Exploration, trained: TrainedAgent, walks: int) -> Path:
    """Make a recorded agent on a memory the shipped one."""
    if not rec.in_repository():
        raise UsageError("--publish writes into a checkout of mgmem, not an installed package")
    if trained.system != "memory" or walks < _ENOUGH_WALKS:
        raise UsageError(
            f"not published: an agent on a memory is, after {_ENOUGH_WALKS:,} walks or more; "
            f"this is {trained.system}, after {walks:,}"
        )
    weights = load_weights(trained.file)
    path = rec.weights_folder() / f"{exploration.name}.safetensors"
    save_weights(path, weights.tensors, weights.about)
    return path
