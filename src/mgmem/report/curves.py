"""Curves: learning against environment steps and wall time, cost against memory size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, find
from mgmem.experiments.records import Record
from mgmem.report import style
from mgmem.report.style import Axes, EngFormatter, Figure
from mgmem.tasks.base import Task

_NAMES = {"f": "F score", "error": "error rate"}
_AGAINST = (("steps", "environment steps", 1.0), ("seconds", "hours of training", 3600.0))


def draw_learning_curves(records: Sequence[Record], *, compared: bool = False) -> Figure:
    """A row per task, all systems that were trained on it in one picture.

    Left against environment steps, right against wall time; the paper's figures as dotted lines.
    compared: only tasks that several systems were trained on.
    """
    rows = _by_task([record for record in records if record.curve])
    if rows and compared:
        rows = [(task, group) for task, group in rows if len({r.experiment for r in group}) > 1]
        if not rows:
            raise UsageError(
                "no two systems have a learning curve on one task: leave out --compared"
            )
    if not rows:
        raise UsageError("no record has a learning curve: `mgmem evaluate RUN --record` writes one")
    with style.look():
        figure = style.new_figure(12.0, 3.6 * len(rows) + 0.6)
        figure.suptitle("Learning curves on validation episodes", fontsize=14, fontweight="bold")
        panels = figure.subplots(len(rows), 2, squeeze=False, sharey="row")
        for (task, group), row in zip(rows, panels, strict=True):
            for axes, against in zip(row, _AGAINST, strict=True):
                _draw_group(axes, task, group, *against)
            row[0].set_title(_group_title(group), loc="left", fontweight="bold")
            row[1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _by_task(records: Sequence[Record]) -> list[tuple[Task, list[Record]]]:
    """Records that can be compared, in the order of the registry."""
    order = list(EXPERIMENTS)
    groups: dict[Task, list[Record]] = {}
    for record in sorted(records, key=lambda record: order.index(find(record.experiment).name)):
        groups.setdefault(find(record.experiment).task(), []).append(record)
    return list(groups.items())


def _group_title(group: Sequence[Record]) -> str:
    return find(group[0].experiment).title


def _draw_group(
    axes: Axes, task: Task, group: Sequence[Record], key: str, label: str, unit: float
) -> None:
    metric = task.metric
    if not metric.higher_is_better:
        axes.set_yscale("log")
    runs: dict[str, int] = {}
    for record in group:
        experiment = find(record.experiment)
        color = style.system_color(experiment.system)
        x = np.array([point[key] for point in record.curve]) / unit
        y = np.array([point[metric.name] for point in record.curve])
        line = "-" if experiment.system == "multigrid" else "--"
        marker = "o" if len(x) == 1 else ""
        # Further runs of one experiment share its colour, fainter.
        number = runs[experiment.name] = runs.get(experiment.name, 0) + 1
        alpha = max(0.3, 1.2 / (number + 0.2))
        name = _label(record, group)
        axes.plot(x, y, line, marker=marker, color=color, alpha=alpha, label=name)
        if number == 1:
            _paper_line(axes, experiment, metric.name, color)
    if metric.higher_is_better:
        axes.set_ylim(0, 1.02)
    if unit == 1.0:  # a flat network takes thirty times the steps in the same time
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.set(xlabel=label, ylabel=f"{_NAMES.get(metric.name, metric.name)}")
    if unit == 1.0:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(True)


def _paper_line(axes: Axes, experiment: Experiment, key: str, color: str) -> None:
    if experiment.row is not None and key in experiment.row.figures:
        axes.axhline(
            experiment.row.figures[key], color=color, linestyle=":", linewidth=1.3,
            label=f"paper, {experiment.name}",
        )  # fmt: skip


def _label(record: Record, group: Sequence[Record]) -> str:
    """The experiment's name; recipe and seed only where there is more than one run of it."""
    runs = [other for other in group if other.experiment == record.experiment]
    return record.experiment + (f" ({record.recipe}, seed {record.seed})" if len(runs) > 1 else "")


def draw_scaling(rows: Sequence[dict[str, Any]]) -> Figure:
    """Time and bytes of a step against memory, both logarithmic, with lines to compare with.

    rows: dictionaries with system ("multigrid", "dnc"), cells, seconds and bytes.
    """
    if not rows:
        raise UsageError("nothing was measured: give at least one size")
    with style.look():
        figure = style.new_figure(11.5, 4.8)
        figure.suptitle("One step against memory size", fontsize=14, fontweight="bold")
        panels = figure.subplots(1, 2)
        parts = (("seconds", 1e3, "milliseconds per step"), ("bytes", 1e-6, "megabytes of state"))
        for axes, (key, factor, label) in zip(panels, parts, strict=True):
            axes.set(xscale="log", yscale="log", xlabel="memory cells", ylabel=label)
            _draw_costs(axes, rows, key, factor)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(True)
            axes.legend(loc="upper left")
    return figure


def _draw_costs(axes: Axes, rows: Sequence[dict[str, Any]], key: str, factor: float) -> None:
    markers = {"multigrid": "o", "dnc": "s"}
    guides = {"multigrid": (1, "linear"), "dnc": (2, "quadratic")}
    names = {"multigrid": "multigrid memory", "dnc": "DNC"}
    for system in dict.fromkeys(row["system"] for row in rows):
        points = sorted(
            (row["cells"], row[key] * factor) for row in rows if row["system"] == system
        )
        cells, cost = np.array(points).T
        color = style.system_color(system)
        axes.plot(
            cells,
            cost,
            color=color,
            marker=markers.get(system, "^"),
            label=names.get(system, system),
        )
        if system in guides and len(cells) > 1:
            power, name = guides[system]
            # Through the largest size, where the growth is not hidden by fixed costs.
            guide = cost[-1] * (cells / cells[-1]) ** power
            shown = guide >= 0.2 * cost.min()
            axes.plot(
                cells[shown], guide[shown], color=color, linestyle=":", linewidth=1.3, label=name
            )
