"""Curves of exploration: how a policy learns, and how its walks compare with others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgmem.errors import UsageError
from mgmem.experiments.explore_records import WalkRecord
from mgmem.report import style
from mgmem.report.style import EngFormatter, Figure

_COLORS = {
    "memory": style.BLUE,
    "map": style.GREEN,
    "lstm": style.PURPLE,
    "reactive": style.ORANGE,
    "frontier": style.BLACK,
    "curious": style.VERMILLION,
    "careful": style.SKY,
    "random": style.GREY,
}

_PANELS = (
    ("localization_loss", "then frozen: loss on the policy's walks", style.VERMILLION),
    ("reward", "reward of a walk", style.BLUE),
    ("coverage", "covered at the end of a walk", style.GREEN),
)


def draw_learning(
    name: str,
    curve: Sequence[dict[str, float]],
    memory_curve: Sequence[dict[str, float]] = (),
) -> Figure:
    """One run on validation mazes: the memory stays right while the policy gets better.

    As the paper's figure of localization under a policy. ``memory_curve``: the loss of the memory
    while it was trained itself; an agent without a memory has none of either.
    """
    if not curve:
        raise UsageError(f"{name} has no learning curve yet: let it train until it evaluates")
    panels = [(curve, *panel) for panel in _PANELS if panel[0] in curve[0]]
    if memory_curve:
        title = "localization loss of the memory as it learns"
        panels.insert(0, (memory_curve, "loss", title, style.VERMILLION))
    with style.look():
        figure = style.new_figure(4.2 * len(panels), 3.4)
        figure.suptitle(f"{name}: learning to explore", fontsize=14, fontweight="bold")
        for axes, (points, key, label, color) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            steps = np.array([point["steps"] for point in points])
            values = np.array([point[key] for point in points])
            axes.plot(steps, values, color=color, marker="o" if len(steps) == 1 else "")
            axes.set(xlabel="environment steps", xlim=(0, None))
            axes.set_title(label, fontsize=10)
            axes.set_ylim(min(0.0, 1.1 * float(values.min())), None)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.grid(True)
    return figure


def draw_company(name: str, records: Sequence[WalkRecord]) -> Figure:
    """Coverage against steps of all walkers, with 95% intervals, the best first."""
    with style.look():
        figure = style.new_figure(9.5, 4.8)
        axes: Any = figure.subplots()
        for record in records:
            steps, mean, low, high = np.array(record.coverage).T
            color = _COLORS.get(record.walker, style.GREY)
            line = "-" if record.parameters else "--"
            label = f"{record.title} ({record.metrics['area']['value']:.2f})"
            axes.plot(steps, mean, line, color=color, label=label)
            axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        axes.axhline(0.9, color=style.GREY, linestyle=":", linewidth=1.2)
        longest = max(record.coverage[-1][0] for record in records)
        axes.set(xlim=(0, longest), ylim=(0, 1.01), xlabel="steps")
        axes.set_ylabel("share of reachable cells visited")
        axes.set_title(f"{name}: coverage of {records[0].walks:,} fresh mazes")
        axes.grid(True)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="(area under the curve)")
    return figure
