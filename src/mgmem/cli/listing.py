"""``mgmem list``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import tyro

from mgmem.cli.tables import new_table, print_table
from mgmem.experiments import EXPERIMENTS, Experiment, count_parameters
from mgmem.experiments.records import Record, load_records, shipped_weights


@dataclass(frozen=True)
class List:
    """Every experiment: parameters, memory, the paper's figure, ours, weights or none."""

    filter: tyro.conf.Positional[str] = ""
    """Only names that contain this text."""


def run(arguments: Sequence[str]) -> None:
    """Parse and print the table."""
    options = tyro.cli(List, prog="mgmem list", args=list(arguments))
    records = load_records()
    left = ("paper", "ours", "budget", "weights")
    table = new_table("experiment", "parameters", "memory", *left, left=left)
    for experiment in EXPERIMENTS.values():
        if options.filter in experiment.name:
            table.add_row(*_row(experiment, records))
    print_table(table)


def _row(experiment: Experiment, records: Sequence[Record]) -> tuple[str, ...]:
    with torch.device("meta"):
        task, model = experiment.build()
    key = task.new_score().key
    paper = experiment.row.figures.get(key) if experiment.row else None
    ours = [record for record in records if record.experiment == experiment.name]
    last = max(ours, key=lambda record: record.date, default=None)
    return (
        experiment.name,
        f"{count_parameters(model):,}",
        f"{int(model.cells):,}",  # type: ignore[arg-type]
        "-" if paper is None else f"{key} {paper:.4f}",
        "-" if last is None else f"{key} {last.estimate(key).value:.4f} ({last.date})",
        "-" if last is None else f"{last.updates:,} updates, {last.seconds / 3600:.1f} h",
        "shipped" if shipped_weights(experiment.name) else "none",
    )
