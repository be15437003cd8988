"""Recorded results: one JSON per finished evaluation, and the weights that go with it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import warnings
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from mgmem.errors import UsageError
from mgmem.files import read_bytes, write_atomically
from mgmem.tasks.base import Estimate, Metric
from mgmem.training.weights import load_weights

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Record:
    """What was run, on what, and what came out."""

    schema: int
    """2: one command and its recipe in stages. 1: recorded before there were stages; its commands
    and flat settings are those of that time."""
    experiment: str
    recipe: str
    """Name of the recipe: "fast" or "paper"."""
    seed: int
    commands: list[str]
    """The command that trained the weights; several, in order, where shipped weights went on (and
    in schema 1)."""
    settings: dict[str, Any]
    """The recipe itself, as it was run."""
    weights: str
    """Checksum of the weights that were scored."""
    commit: str
    date: str
    machine: str
    parameters: int
    cells: int
    updates: int
    """Of all stages, and of the weights that they started from."""
    steps: int
    """Environment steps: time steps of each of the batch's sequences."""
    seconds: float
    """Wall time of training, evaluations on validation episodes included."""
    curve: list[dict[str, float]]
    """Validation metrics over training."""
    episodes: int
    """Fresh test episodes behind the metrics."""
    metric: str
    """Name of the metric that decides."""
    higher_is_better: bool
    metrics: dict[str, dict[str, float]]
    """Metric to value, low and high (95% interval)."""
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The same answers scored in parts, where the task has such: "age" to its rows."""

    def estimate(self, metric: str | None = None) -> Estimate:
        """A metric with its interval; None: the one that decides."""
        return Estimate(**self.metrics[metric or self.metric])

    @property
    def best_validation(self) -> float | None:
        """The best value of the deciding metric on validation episodes, or None."""
        values = [point[self.metric] for point in self.curve]
        return (max if self.higher_is_better else min)(values, default=None)

    def steps_to(self, goal: float) -> int | None:
        """Environment steps after which the validation metric first met ``goal``, or None."""
        metric = Metric(self.metric, self.higher_is_better)
        reached = (p["steps"] for p in self.curve if metric.meets(p[self.metric], goal))
        return next((int(steps) for steps in reached), None)

    def write(self, folder: Path) -> Path:
        """Write ``folder/EXPERIMENT/RECIPE-seedN.json``."""
        path = folder / self.experiment / f"{self.recipe}-seed{self.seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())
        return path


def read_record(path: Path) -> Record:
    """A record, every field of its kind; anything else is an error that names the file."""
    try:
        content = json.loads(read_bytes(path).decode())
        record = Record(**content)
        _check(record)
        return record
    except (OSError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not a record of mgmem: {error}") from None


_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "list": list,
    "dict": dict,
}


def _check(record: Record) -> None:
    """Raise ValueError unless every field has its kind, and numbers stand where they have to."""
    for one in fields(record):
        value, kind = getattr(record, one.name), _KINDS[str(one.type).partition("[")[0]]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{one.name} is {value!r}")
    if record.recipe not in ("fast", "paper") or record.schema not in (1, 2):
        raise ValueError(f"recipe {record.recipe!r}, schema {record.schema}")
    datetime.date.fromisoformat(record.date)
    record.estimate()
    numbers = [v for point in record.curve for v in (point["steps"], point[record.metric])]
    numbers += [v for estimate in record.metrics.values() for v in estimate.values()]
    for row in (row for rows in record.parts.values() for row in rows):
        numbers += [row["share"], row["precision"], row["recall"], row["f"]]
        if not isinstance(row["name"], str):
            raise ValueError("a part whose name is no text")
    if not all(isinstance(v, int | float) for v in numbers):
        raise ValueError("a figure that is no number")
    if not all(isinstance(command, str) for command in record.commands):
        raise ValueError("a command that is no text")


def results_folder() -> Path:
    """The results that came with the package, or those of the repository it runs from."""
    inside = _PACKAGE / "results"
    return inside if inside.is_dir() else _PACKAGE.parent.parent / "results"


def weights_folder() -> Path:
    """The shipped weights."""
    return _PACKAGE / "weights"


def in_repository() -> bool:
    """Whether this is a checkout, whose weights may be renewed, and no installed package."""
    return (_PACKAGE.parent.parent / "pyproject.toml").is_file()


def shipped_weights(name: str) -> Path | None:
    """The weights file shipped for an experiment, or None."""
    path = weights_folder() / f"{name}.safetensors"
    return path if path.is_file() else None


def shipped_checksum(name: str) -> str | None:
    """Checksum of an experiment's shipped weights, or None."""
    path = shipped_weights(name)
    return None if path is None else load_weights(path).sha256


def load_records(folder: Path | None = None) -> list[Record]:
    """Every record, ordered by experiment and file name; a bad one is named and passed over."""
    records = []
    for path in sorted((folder or results_folder()).glob("*/*.json")):
        try:
            records.append(read_record(path))
        except UsageError as error:
            warnings.warn(f"passed over: {error}", stacklevel=2)
    return records


def commit() -> str:
    """The commit that the code runs from, "+" if it was changed since; "unknown" elsewhere."""
    here = _PACKAGE.parent

    def git(*words: str) -> str:
        # Without locks: looking must not write, or be stopped half way through writing, the index.
        command = ["git", "--no-optional-locks", *words]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
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
