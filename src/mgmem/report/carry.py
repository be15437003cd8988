"""How far memories carry, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from mgmem.errors import UsageError
from mgmem.experiments.carry import Carried
from mgmem.report import style
from mgmem.report.style import Figure


def carry_table(carried: Sequence[Carried]) -> str:
    """A row per memory, a column per kind of walk; its own kind is bold."""
    walks = sorted({(one.walk != "spiral", _steps(one)) for one in carried})
    heads = [f"random, {steps:,} steps" if random else "spiral" for random, steps in walks]
    lines = ["| trained as | " + " | ".join(heads) + " |", "| :-- |" + " --: |" * len(heads)]
    for name in dict.fromkeys(one.experiment for one in carried):
        cells = {
            (one.walk != "spiral", _steps(one)): _cell(one)
            for one in carried
            if one.experiment == name
        }
        lines.append(f"| `{name}` | " + " | ".join(cells.get(walk, "-") for walk in walks) + " |")
    return "\n".join(lines)


def _steps(one: Carried) -> int:
    """Spirals are as long as worlds are large: one column for all."""
    return 0 if one.walk == "spiral" else one.steps


def _cell(one: Carried) -> str:
    mark = "**" if one.own else ""
    return f"{mark}{one.value:.4f}{mark} [{one.low:.4f}, {one.high:.4f}]"


def draw_carry(carried: Sequence[Carried]) -> Figure:
    """F against the length of random walks, a line per memory, its interval shaded."""
    if not carried:
        raise UsageError("nothing was measured: ship a mapping memory first")
    with style.look():
        figure = style.new_figure(10, 4.4)
        figure.suptitle("How far memories of maps carry", fontsize=14, fontweight="bold")
        axes = figure.subplots()
        names = dict.fromkeys(one.experiment for one in carried)
        for name, color in zip(names, style.LINE_COLORS * len(names), strict=False):
            walks = [o for o in carried if o.experiment == name and o.walk != "spiral"]
            walks.sort(key=lambda one: one.steps)
            steps = [one.steps for one in walks]
            low, high = [one.low for one in walks], [one.high for one in walks]
            axes.plot(steps, [one.value for one in walks], "o-", color=color, label=name)
            axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        axes.set(xscale="log", xlabel="steps of a random walk", ylabel="F score")
        axes.set_ylim(0, 1.02)
        axes.set_xticks(sorted({one.steps for one in carried if one.walk != "spiral"}), minor=False)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(True)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure
