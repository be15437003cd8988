"""The routing figure: what one cell reaches through a pyramid, and what it reaches without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from mgmem.report.style import (
    BLUE,
    GREEN,
    ORANGE,
    UNKNOWN_COLOR,
    VALUES,
    VERMILLION,
    look,
    new_figure,
)
from mgmem.routing import Cell, Reach, reach
from mgmem.spec import MeshSpec

_LINKS = {
    1: ("to the finer level", VERMILLION),
    0: ("same level", GREEN),
    -1: ("to the coarser level", ORANGE),
}
_INK, _PALE = "#444B55", "#EDEFF3"
_PAPER = " ".join(["0-3:1"] * 6)
_COLUMN, _GAP = 1.75, 0.42


def draw_routing(
    spec: str | MeshSpec = _PAPER,
    source: Cell | None = None,
    base: Sequence[int] = (8, 8),
    *,
    kernel: int = 3,
) -> Figure:
    """Draw what ``source`` reaches: columns are layers, rows are levels, the finest on top.

    Above with the links between levels, below the source's level without them. A cell's colour
    is the layer at which its place was first reached, the number under a grid how much of it is.
    The defaults are the paper's setting: cell (26, 26) of a 64x64 grid, counted from 1.
    """
    source = source or Cell(1, 3, (25, 25))
    linked = reach(spec, source, base, kernel=kernel)
    alone = reach(spec, source, base, kernel=kernel, cross_scale=False)
    levels = sorted({j for number in linked.layers for j in linked[number]}, reverse=True)
    plan = _Plan(linked, levels)
    with look():
        figure = new_figure(max(0.4 + _COLUMN * len(linked.layers), 6.0), plan.height + 0.75)
        axes = figure.add_subplot()
        axes.set(xlim=(-0.75, plan.width), ylim=(-plan.height, 0.55))
        axes.axis("off")
        colors = _colors(len(linked.layers))
        _draw_links(axes, plan, linked)
        for level in levels:
            _draw_row(axes, plan, linked, level, plan.row(level), colors)
        _draw_row(axes, plan, alone, source.level, plan.last_row, colors)
        _draw_plain_links(axes, plan, alone)
        _draw_words(axes, plan, linked)
        axes.set_aspect("equal")  # pictures placed by extent have undone it
        _draw_keys(figure, axes, linked, colors)
    return figure


class _Plan:
    """Where things are: inches to the right of and above the first column's top."""

    def __init__(self, linked: Reach, levels: Sequence[int]) -> None:
        self.linked, self.levels = linked, levels
        tops = np.cumsum([0.0, *(self.size(level)[1] + _GAP for level in levels)])
        self._rows = {
            j: -float(t) - self.size(j)[1] / 2 for j, t in zip(levels, tops, strict=False)
        }
        own = self.size(linked.source.level)[1]
        self.rule = -float(tops[-1]) - 0.12
        self.last_row = self.rule - 0.62 - own / 2
        self.height = -self.last_row + own / 2 + 0.35
        self.width = _COLUMN * len(linked.layers) - 0.2

    def size(self, level: int) -> tuple[float, float]:
        """Width and height of a grid. Sides grow with the root of the true ones, to fit a page."""
        finest = max(self.levels)
        side = 1.3 * 2 ** ((level - finest) / 2)
        if len(self.linked.base) == 1:
            return side, 0.22
        rows, columns = self.linked.base
        return side * columns / max(rows, columns), side * rows / max(rows, columns)

    def row(self, level: int) -> float:
        """Height of the middle of a level's row."""
        return self._rows[level]

    def column(self, layer: int) -> float:
        """Middle of a layer's column."""
        return 0.65 + _COLUMN * (layer - self.linked.source.layer)


def _colors(count: int) -> ListedColormap:
    """One colour per layer, dark for early; the lightest stay off the unreached cells' grey."""
    return ListedColormap(matplotlib.colormaps[VALUES](np.linspace(0.02, 0.9, count)))


def _first_reached(reached: Reach, layer: int, level: int) -> NDArray[np.float64]:
    """The layer at which each place of a level was first reached, by ``layer``; NaN: not yet."""
    first = np.full(reached[layer][level].shape, np.nan)
    for number in range(layer, reached.source.layer - 1, -1):
        if level in reached[number]:
            first[reached[number][level]] = number
    return first


def _draw_row(
    axes: Axes, plan: _Plan, reached: Reach, level: int, middle: float, colors: ListedColormap
) -> None:
    width, height = plan.size(level)
    norm = _norm(reached)
    for layer in reached.layers:
        if level not in reached[layer]:
            continue
        left, bottom = plan.column(layer) - width / 2, middle - height / 2
        extent = (left, left + width, bottom, bottom + height)
        axes.add_patch(Rectangle((left, bottom), width, height, facecolor=_PALE, zorder=2))
        picture = np.atleast_2d(_first_reached(reached, layer, level))
        axes.imshow(picture, cmap=colors, norm=norm, extent=extent, aspect="auto", zorder=3)
        axes.add_patch(
            Rectangle((left, bottom), width, height, fill=False, edgecolor=_INK, lw=0.8, zorder=4)
        )
        if (layer, level) == (reached.source.layer, reached.source.level):
            _mark_source(axes, reached, extent)
        share = reached.share(layer, level)
        axes.text(
            plan.column(layer), bottom - 0.04, _percent(share), ha="center", va="top", fontsize=8,
            color=_INK if share else "#9AA1AC", zorder=5,
        )  # fmt: skip


def _mark_source(axes: Axes, reached: Reach, extent: tuple[float, float, float, float]) -> None:
    """A ring around the source cell, which alone would be too small to see."""
    shape = np.atleast_2d(reached[reached.source.layer][reached.source.level]).shape
    row, column = (0, *reached.source.position)[-2:]
    left, right, bottom, top = extent
    x = left + (right - left) * (column + 0.5) / shape[1]
    y = top - (top - bottom) * (row + 0.5) / shape[0]
    axes.plot(x, y, "o", ms=9, mfc="none", mec=BLUE, mew=1.6, zorder=6)


def _percent(share: float) -> str:
    if share == 0 or share == 1:
        return f"{share:.0%}"
    return f"{share:.2%}" if share < 0.001 else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _links(reached: Reach) -> Iterator[tuple[int, int, int]]:
    """Layer, level, and level in the next layer, of every link that carries something."""
    for layer in list(reached.layers)[:-1]:
        for level, mask in reached[layer].items():
            for step in _LINKS:
                if mask.any() and level + step in reached[layer + 1]:
                    yield layer, level, level + step


def _draw_links(axes: Axes, plan: _Plan, linked: Reach) -> None:
    for layer, level, to in _links(linked):
        start = plan.column(layer) + plan.size(level)[0] / 2, plan.row(level)
        end = plan.column(layer + 1) - plan.size(to)[0] / 2, plan.row(to)
        _arrow(axes, start, end, _LINKS[to - level][1])


def _draw_plain_links(axes: Axes, plan: _Plan, alone: Reach) -> None:
    level, width = alone.source.level, plan.size(alone.source.level)[0]
    for layer in list(alone.layers)[:-1]:
        if level in alone[layer] and level in alone[layer + 1]:
            start = plan.column(layer) + width / 2, plan.last_row
            _arrow(axes, start, (plan.column(layer + 1) - width / 2, plan.last_row), GREEN)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    style = {"arrowstyle": "-|>,head_length=0.35,head_width=0.16", "color": color, "lw": 1.1}
    axes.annotate("", end, start, arrowprops={**style, "shrinkA": 1.5, "shrinkB": 1.0}, zorder=1)


def _draw_words(axes: Axes, plan: _Plan, linked: Reach) -> None:
    for layer in linked.layers:
        axes.text(
            plan.column(layer), 0.16, f"layer {layer}", ha="center", va="bottom", weight="bold"
        )
    named = [(level, plan.row(level)) for level in plan.levels]
    for level, middle in [*named, (linked.source.level, plan.last_row)]:
        sides = "×".join(str(side << level) for side in linked.base)
        axes.text(
            -0.1, middle, f"level {level}\n{sides}", ha="right", va="center", fontsize=9, color=_INK
        )
    axes.plot([-0.7, plan.width - 0.2], [plan.rule] * 2, color=UNKNOWN_COLOR, lw=1)
    axes.text(-0.7, plan.rule - 0.12, "Without links between levels", va="top", weight="bold")


def _draw_keys(figure: Figure, axes: Axes, linked: Reach, colors: ListedColormap) -> None:
    handles = [Line2D([], [], color=color, lw=1.6, label=label) for label, color in _LINKS.values()]
    ring = Line2D(
        [], [], ls="", marker="o", ms=8, mfc="none", mec=BLUE, mew=1.6, label="source cell"
    )
    figure.legend(handles=[ring, *handles], loc="outside lower center", ncols=4)
    bar = figure.colorbar(
        ScalarMappable(_norm(linked), colors), ax=axes, ticks=list(linked.layers),
        shrink=0.45, aspect=22, pad=0.01, label="first reached at layer",
    )  # fmt: skip
    bar.ax.invert_yaxis()
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)


def _norm(reached: Reach) -> Normalize:
    return Normalize(reached.layers[0] - 0.5, reached.layers[-1] + 0.5)
