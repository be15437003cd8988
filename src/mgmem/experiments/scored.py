"""Scored weights: how they are recorded, and when they may become the shipped ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mgmem.errors import UsageError
from mgmem.experiments import records as rec
from mgmem.experiments.experiment import count_parameters
from mgmem.experiments.trained import Trained
from mgmem.tasks.base import Estimate
from mgmem.tasks.map_parts import Part
from mgmem.training.content import newest, spent
from mgmem.training.weights import digest, save_weights

_ENOUGH_EPISODES = 5000


@dataclass(frozen=True)
class Scored:
    """Trained weights with their metrics on ``episodes`` fresh test episodes."""

    trained: Trained
    metrics: dict[str, Estimate]
    episodes: int
    half: bool = False
    """The weights are rounded to half precision, and stored so."""
    parts: dict[str, list[Part]] = field(default_factory=dict)
    """The score in parts, where the task has such."""

    def record(self, folder: Path) -> rec.Record:
        """The record of a run: what its folder's checkpoint says, and the metrics."""
        content, _ = newest(folder, self.trained.task.metric.name)
        if content is None:
            raise UsageError(f"{folder} holds no checkpoint, for the record's curve and budget")
        model, task, about = self.trained.model, self.trained.task, self.trained.about
        stage, progress = content["stage"], content["progress"]
        took = spent(progress, stage["update"], stage["feed"]["steps"])
        return rec.Record(
            schema=2,
            experiment=self.trained.experiment.name,
            recipe=about["recipe"],
            seed=about["seed"],
            commands=[*about.get("after", {}).get("commands", []), _as_far(content)],
            settings=content["recipe"],
            weights=digest(model.state_dict(), self._about(), half=self.half),
            commit=rec.commit(),
            date=rec.today(),
            machine=rec.machine(),
            parameters=count_parameters(model),
            cells=model.cells,
            updates=took.updates,
            steps=took.steps,
            seconds=round(took.seconds, 1),
            curve=progress["curve"],
            episodes=self.episodes,
            metric=task.metric.name,
            higher_is_better=task.metric.higher_is_better,
            metrics={name: asdict(estimate) for name, estimate in self.metrics.items()},
            parts={by: [asdict(part) for part in rows] for by, rows in self.parts.items()},
        )

    def publish(self, results: Path, force: bool = False) -> Path:
        """Make the weights the shipped ones, unless there is a reason not to."""
        name = self.trained.experiment.name
        if not rec.in_repository():
            raise UsageError("--publish writes into a checkout of mgmem, not an installed package")
        reason = None if force else self._reason_against(results)
        if reason:
            raise UsageError(f"not published: {reason}; --force does it all the same")
        path = rec.weights_folder() / f"{name}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_weights(path, self.trained.model.state_dict(), self._about(), half=self.half)
        return path

    def _reason_against(self, results: Path) -> str | None:
        name, metric = self.trained.experiment.name, self.trained.task.metric
        if self.episodes < _ENOUGH_EPISODES:
            return f"{self.episodes} episodes are few: score {_ENOUGH_EPISODES:,}"
        records = [record for record in rec.load_records(results) if record.experiment == name]
        mine = digest(self.trained.model.state_dict(), self._about(), half=self.half)
        if all(record.weights != mine for record in records):
            return "these weights are not recorded: add --record"
        shipped = rec.shipped_checksum(name)
        value = self.metrics[metric.name].value
        for record in records:
            other = record.estimate().value
            if record.weights == shipped != mine and metric.better(other, than=value):
                return f"the shipped weights are better ({metric.name} {other:.4f})"
        return None

    def _about(self) -> dict[str, Any]:
        return self.trained.about


def _as_far(content: dict[str, Any]) -> str:
    """The run's command; with the updates it had, where it was stopped before its end."""
    stages, progress, update = (
        content["recipe"]["stages"],
        content["progress"],
        content["stage"]["update"],
    )
    whole = progress["stage"] + 1 == len(stages) and update == stages[-1]["updates"]
    command: str = content["command"]
    return command if whole else f"{command} --max-updates {progress['updates'] + update}"
