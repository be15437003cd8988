"""Recorded walks: one JSON per walker, with the whole curve of coverage against steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mgmem.errors import UsageError
from mgmem.experiments import records as rec
from mgmem.rl.coverage import Log
from mgmem.tasks.base import Estimate
from mgmem.training.checkpoint import write_atomically

_NORMAL_95 = 1.96
_MOMENTS = 100


@dataclass(frozen=True)
class WalkRecord:
    """How one walker covered fresh mazes and, if it learned, how it came to that."""

    exploration: str
    walker: str
    title: str
    commit: str
    date: str
    machine: str
    walks: int
    """Fresh test mazes, one walk each; the same for every walker."""
    metrics: dict[str, dict[str, float]]
    """Metric to value, low and high (95% interval)."""
    coverage: list[list[float]]
    """Steps, and mean, low and high coverage after so many; some hundred moments, first and last
    among them."""
    command: str | None = None
    """The command that trained it."""
    about: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    updates: int = 0
    steps: int = 0
    """Environment steps of training, of all walks together."""
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)
    """Validation metrics over training."""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval."""
        return Estimate(**self.metrics[metric])

    def write(self, folder: Path) -> Path:
        """Write ``folder/exploration/NAME/WALKER.json``."""
        path = folder / "exploration" / self.exploration / f"{self.walker}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())
        return path


def new_record(
    exploration: str, walker: str, title: str, log: Log, metrics: dict[str, Estimate], **more: Any
) -> WalkRecord:
    """A record of walks taken just now."""
    return WalkRecord(
        exploration=exploration,
        walker=walker,
        title=title,
        commit=rec.commit(),
        date=rec.today(),
        machine=rec.machine(),
        walks=len(log.keys),
        metrics={name: _rounded(asdict(estimate)) for name, estimate in metrics.items()},
        coverage=coverage_curve(log),
        **more,
    )


def coverage_curve(log: Log) -> list[list[float]]:
    """Steps, and mean, low and high (95%) of coverage after so many."""
    last = log.coverage.shape[1] - 1
    steps = np.unique(np.linspace(0, last, _MOMENTS + 1).round().astype(np.int64))
    covered = log.coverage[:, steps]
    mean = covered.mean(axis=0)
    half = _NORMAL_95 * covered.std(axis=0, ddof=1) / np.sqrt(len(covered))
    return np.stack([steps, mean, mean - half, mean + half], axis=1).round(4).tolist()


def load_walk_records(exploration: str, folder: Path | None = None) -> list[WalkRecord]:
    """All walkers of an exploration, those that cover most first."""
    found = []
    where = (folder or rec.results_folder()) / "exploration" / exploration
    for path in sorted(where.glob("*.json")):
        try:
            found.append(WalkRecord(**json.loads(path.read_text())))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path} is not a record of walks: {error}") from None
    return sorted(found, key=lambda record: -record.metrics["area"]["value"])


def walk_table(records: Sequence[WalkRecord]) -> str:
    """The records as a Markdown table."""
    lines = [
        "| walker | parameters | coverage at the end | area under the curve | steps to 90 % "
        "| bumps per 100 | reward |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
    ]
    for record in records:
        cells = [_interval(record.estimate(name), form) for name, form in _COLUMNS.items()]
        count = f"{record.parameters:,}" if record.parameters else "-"
        lines.append(f"| {record.title} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


_COLUMNS = {"coverage": ".3f", "area": ".3f", "steps_to_90": ".0f", "bumps": ".1f", "reward": ".1f"}


def _interval(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
