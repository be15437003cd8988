"""Recorded results: one JSON per finished evaluation, and the weights that go with it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mgmem.errors import UsageError
from mgmem.tasks.base import Estimate
from mgmem.training.checkpoint import write_atomically

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Record:
    """What was run, on what, and what came out."""

    experiment: str
    recipe: str
    seed: int
    command: str
    """The command that trained the weights."""
    settings: dict[str, Any]
    """The recipe as it was run."""
    commit: str
    date: str
    machine: str
    parameters: int
    cells: int
    updates: int
    steps: int
    """Environment steps: time steps of each of the batch's sequences."""
    seconds: float
    """Wall time of training, evaluations on validation episodes included."""
    curve: list[dict[str, float]]
    """Validation metrics over training."""
    episodes: int
    """Fresh test episodes behind the metrics."""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metric to value, low and high (95% interval)."""
    earlier: list[str] = field(default_factory=list)
    """Commands, in order, that trained the weights that `command` started from."""

    def estimate(self, metric: str) -> Estimate:
        """A metric with its interval."""
        return Estimate(**self.metrics[metric])

    def steps_to(self, metric: str, goal: float, higher_is_better: bool = True) -> int | None:
        """Environment steps at which the validation curve first met a goal, or None."""
        for point in self.curve:
            value = point[metric]
            if (value >= goal) if higher_is_better else (value <= goal):
                return int(point["steps"])
        return None

    def write(self, folder: Path) -> Path:
        """Write ``folder/EXPERIMENT/RECIPE-seedN.json``."""
        path = folder / self.experiment / f"{self.recipe}-seed{self.seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())
        return path


def results_folder() -> Path:
    """The results that came with the package, or those of the repository it runs from."""
    inside = _PACKAGE / "results"
    return inside if inside.is_dir() else _PACKAGE.parent.parent / "results"


def weights_folder() -> Path:
    """The shipped weights."""
    return _PACKAGE / "weights"


def shipped_weights(name: str) -> Path | None:
    """The weights file shipped for an experiment, or None."""
    path = weights_folder() / f"{name}.safetensors"
    return path if path.is_file() else None


def load_records(folder: Path | None = None) -> list[Record]:
    """Every record, ordered by experiment and file name."""
    records = []
    for path in sorted((folder or results_folder()).glob("*/*.json")):
        try:
            records.append(Record(**json.loads(path.read_text())))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path} is not a record of mgmem: {error}") from None
    return records


def commit() -> str:
    """The commit that the code runs from, "+" if it was changed since; "unknown" elsewhere."""
    here = _PACKAGE.parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--", "src") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    """What the numbers were made on, in a line."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} cores, {model}, torch {torch.__version__}"


def today() -> str:
    """The date, as ISO text."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
