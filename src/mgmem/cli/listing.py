"""``mgmem list``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import tyro

from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, count_parameters
from mgmem.experiments.records import Record, load_records, shipped_weights
from mgmem.report.tables import figure


@dataclass(frozen=True)
class List:
    """Every experiment: parameters, memory, the paper's figure, ours, weights or none."""

    filter: tyro.conf.Positional[str] = ""
    """Only names that contain this text."""


def run(arguments: Sequence[str]) -> None:
    """Parse and print the table."""
    options = tyro.cli(List, prog="mgmem list", args=list(arguments))
    found = [e for e in EXPERIMENTS.values() if options.filter in e.name]
    if not found:
        raise UsageError(f"no experiment's name contains {options.filter!r}; `mgmem list` has all")
    records = load_records()
    left = ("paper", "ours", "budget", "weights")
    table = new_table("experiment", "parameters", "memory", *left, left=left)
    for experiment in found:
        table.add_row(*_row(experiment, records))
    print_table(table)


def _row(experiment: Experiment, records: Sequence[Record]) -> tuple[str, ...]:
    with torch.device("meta"):
        task, model = experiment.build()
    key = task.metric.name
    paper = experiment.row.figures.get(key) if experiment.row else None
    ours = [r for r in records if r.experiment == experiment.name and r.recipe == "fast"]
    last = max(ours, key=lambda record: record.date, default=None)
    return (
        experiment.name,
        f"{count_parameters(model):,}",
        f"{model.cells:,}",
        "-" if paper is None else f"{key} {paper:.4f}",
        "-" if last is None else f"{figure(ours).replace('**', '')}, {last.date}",
        "-" if last is None else f"{last.updates:,} updates, {last.seconds / 3600:.1f} h",
        "shipped" if shipped_weights(experiment.name) else "none",
    )
