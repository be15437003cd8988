"""Where mapping memories fail: F by patch, by age and by distance, all rows in one figure."""

from __future__ import annotations

from collections.abc import Sequence

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS
from mgmem.experiments.records import Record
from mgmem.report import style
from mgmem.report.style import Axes, Figure

_PANELS = {
    "patch": "Rare patches\n(rank by how often asked)",
    "age": "Old memories\n(share of the walk behind)",
    "distance": "Far places\n(share of the way to the wall)",
}


def draw_parts(records: Sequence[Record]) -> Figure:
    """A panel for each way to take the score apart, a line for each record that has it."""
    order = list(EXPERIMENTS)
    shown = [record for record in records if record.parts]
    shown.sort(key=lambda record: (order.index(record.experiment), record.seed))
    if not shown:
        raise UsageError("no record has its score in parts: `mgmem evaluate RUN --record` does it")
    with style.look():
        figure = style.new_figure(12.0, 4.4)
        figure.suptitle("Where memories of maps fail", fontsize=14, fontweight="bold")
        panels = figure.subplots(1, len(_PANELS), sharey=True)
        for axes, (by, title) in zip(panels, _PANELS.items(), strict=True):
            axes.set_title(title, loc="left")
            for number, record in enumerate(shown):
                _draw(axes, by, record, style.LINE_COLORS[number % len(style.LINE_COLORS)])
            axes.grid(True)
        panels[0].set_ylabel("F score")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _draw(axes: Axes, by: str, record: Record, color: str) -> None:
    rows = record.parts.get(by, [])
    values = [row["f"] for row in rows]
    if by == "patch":
        # "31 to 134" ends elsewhere for every memory: "31+" is the same place for all.
        starts = [row["name"].replace(" to ", "+").partition("+") for row in rows]
        axes.plot([start + sign for start, sign, _ in starts], values, "o-", color=color)
        return
    # Walks and worlds differ in length and size: their ends are laid upon each other.
    ends = [float(row["name"].replace(",", "").split()[-1]) for row in rows]
    last = ends[-1] if ends and ends[-1] else 1.0
    label = f"{record.experiment}, seed {record.seed}"
    axes.plot([end / last for end in ends], values, "o-", markersize=4, color=color, label=label)
