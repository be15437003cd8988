"""``mgmem list``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import tyro

from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, count_parameters, find
from mgmem.experiments.records import Record, load_records, shipped_weights
from mgmem.report.tables import figure

if TYPE_CHECKING:
    from mgmem.experiments.explore import Exploration


@dataclass(frozen=True)
class List:
    """Every experiment: parameters, memory, the paper's figure, ours, weights or none."""

    filter: tyro.conf.Positional[str] = ""
    """Only names that contain this text."""


_LEFT = ("paper", "ours", "budget", "weights")


def run(arguments: Sequence[str]) -> None:
    """Parse and print the table."""
    options = tyro.cli(List, prog="mgmem list", args=list(arguments))
    found = [e for e in EXPERIMENTS.values() if options.filter in e.name]
    agents = [row for row in _agents() if options.filter in row[0]]
    if not found and not agents:
        raise UsageError(f"no experiment's name contains {options.filter!r}; `mgmem list` has all")
    records = load_records()
    table = new_table("experiment", "parameters", "memory", *_LEFT, left=_LEFT)
    for experiment in found:
        table.add_row(*_row(experiment, records))
    for row in agents:
        table.add_row(*row)
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


def _agents() -> list[tuple[str, ...]]:
    """Rows of the explorations; none where gymnasium, an extra, is not installed."""
    try:
        from mgmem.experiments.explore import EXPLORATIONS
    except UsageError:
        return []
    return [_agent_row(exploration) for exploration in EXPLORATIONS.values()]


def _agent_row(exploration: Exploration) -> tuple[str, ...]:
    """An agent: its policy's parameters, its memory's cells, what the memory knew of its walks."""
    from mgmem.experiments.explore import PAPER_F
    from mgmem.experiments.explore_records import load_walk_records

    with torch.device("meta"):
        _, memory = find(exploration.memory).build()
    records = load_walk_records(exploration.name)
    ours = next((record for record in records if record.walker == "memory"), None)
    paper = f"f {PAPER_F:.4f}" if exploration.world == 25 else "-"
    shipped = "shipped" if shipped_weights(exploration.name) else "none"
    if ours is None:
        return exploration.name, "-", f"{memory.cells:,}", paper, "-", "-", shipped
    f, covered = ours.estimate("f"), ours.estimate("coverage")
    return (
        exploration.name,
        f"{ours.parameters:,}",
        f"{memory.cells:,}",
        paper,
        f"F {f.value:.4f} [{f.low:.4f}, {f.high:.4f}], {covered.value:.1%} covered, {ours.date}",
        f"{ours.updates:,} updates, {ours.seconds / 3600:.1f} h",
        shipped,
    )
