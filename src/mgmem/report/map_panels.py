"""The panels that pictures of a memory are made of: maps, grids, questions, answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mgmem.report import style
from mgmem.report.memory import FREE, UNKNOWN, WALL, History, Image, Moment
from mgmem.report.style import Axes, Line2D, LineCollection, MaxNLocator, Patch

_OUTLINE = "#FF6F00"


def draw_map(axes: Axes, grid: int, moment: Moment) -> None:
    """The world as explored by a moment, with the agent and its path."""
    MapPanel(axes, grid).show(moment)


def map_legend(figure: Any, *more: Any) -> None:
    """What is what on a map, below everything else."""
    figure.legend(
        handles=[*map_handles(), *more], loc="outside lower center", ncols=7,
        handlelength=1.3, columnspacing=1.3,
    )  # fmt: skip


class MapPanel:
    """The explored world with the agent's path on it."""

    def __init__(self, axes: Axes, grid: int) -> None:
        extent = extent_of(grid)
        empty = np.full((grid, grid), UNKNOWN)
        self._image = axes.imshow(empty, cmap=style.MAP, vmin=UNKNOWN, vmax=WALL, extent=extent)
        (self._path,) = axes.plot([], [], color=style.BLUE, linewidth=1.3)
        (self._start,) = axes.plot(0, 0, "s", color=style.BLUE, markersize=4)
        (self._agent,) = axes.plot(
            [], [], "o", color=_OUTLINE, markeredgecolor="white", markersize=8
        )
        dress(axes, "from the start")
        self._half = grid // 2
        self.artists = [self._image, self._path, self._start, self._agent, *axes.spines.values()]

    def show(self, moment: Moment) -> None:
        """Turn to a moment."""
        rows, columns = (moment.path - self._half).T
        self._image.set_data(moment.explored)
        self._path.set_data(columns, rows)
        self._agent.set_data(columns[-1:], rows[-1:])


def map_handles() -> list[Any]:
    """Legend entries of a map."""
    edge = "#444B55"
    return [
        Patch(facecolor=style.UNKNOWN_COLOR, edgecolor=edge, label="not seen yet"),
        Patch(facecolor=style.FREE_COLOR, edgecolor=edge, label="free"),
        Patch(facecolor=style.WALL_COLOR, edgecolor=edge, label="wall"),
        Line2D([], [], color=style.BLUE, linewidth=1.3, label="path"),
        Line2D([], [], color=style.BLUE, marker="s", markersize=4, linestyle="", label="start"),
        Line2D(
            [], [], color=_OUTLINE, marker="o", markeredgecolor="white", markersize=8,
            linestyle="", label="agent",
        ),
    ]  # fmt: skip


def wanted_handle() -> Patch:
    """Legend entry of the outlines around what is wanted."""
    return Patch(facecolor="none", edgecolor=_OUTLINE, linewidth=1.4, label="wanted answer")


def memory_image(axes: Axes, values: Image, history: History, part: str) -> Any:
    """A grid of the memory, (side, side), in colours that suit all moments."""
    low, high = history.limits(part)
    side = len(values)
    same = side == history.grid
    extent = extent_of(side) if same else (-0.5, side - 0.5, side - 0.5, -0.5)
    image = axes.imshow(values, cmap=style.VALUES, vmin=low, vmax=high, extent=extent)
    # Where the two grids have one size, memory lies in register with the map: same axes.
    origin = "from the start" if same else "of the grid"
    dress(axes, origin)
    return image


class ReadingPanel:
    """The map as read out of the memory, "probed" or "believed", and how much of it is right."""

    def __init__(self, axes: Axes, history: History, part: str) -> None:
        grid = history.grid
        empty = np.full((grid, grid), np.nan)
        self._image = axes.imshow(empty, cmap=style.BELIEF, vmin=0, vmax=1, extent=extent_of(grid))
        dress(axes, "from the start")
        self._part = part
        self._right = axes.text(
            0.5, -0.19, " ", transform=axes.transAxes, ha="center", va="top", fontweight="bold"
        )
        self.artists = [self._image, *axes.spines.values(), self._right]

    def show(self, moment: Moment) -> None:
        """Turn to a moment."""
        self._image.set_data(getattr(moment, self._part))
        self._right.set_text(told_right(moment, self._part))


def told_right(moment: Moment, part: str) -> str:
    """How much of what was seen a reading tells right."""
    return f"{moment.right(part):.1%} of the cells seen right"


def probabilities(axes: Axes, grid: int) -> Any:
    """An answer, still empty: (grid, grid) from 0 to 1."""
    empty = np.zeros((grid, grid))
    image = axes.imshow(empty, cmap=style.VALUES, vmin=0, vmax=1, extent=extent_of(grid))
    dress(axes, "from the start")
    return image


class QueryPanel:
    """The patch that is asked for, its cells told apart by thin lines."""

    def __init__(self, axes: Axes) -> None:
        self._image = axes.imshow(
            np.full((3, 3), FREE), cmap=style.MAP, vmin=UNKNOWN, vmax=WALL, extent=(0, 1, 1, 0)
        )
        self._lines = LineCollection([], colors="#444B55", linewidths=0.8)
        axes.add_collection(self._lines, autolim=False)
        # A margin on all sides: a patch of a few cells need not be as large as the map.
        axes.set(xlim=(-0.25, 1.25), ylim=(1.25, -0.25))
        axes.set_title("query: where have you seen this?")
        axes.set_axis_off()
        self._size = axes.text(0.5, 1.06, " ", ha="center", va="top")
        self.artists = [self._image, self._lines, self._size]

    def show(self, moment: Moment) -> None:
        """Turn to a moment."""
        nothing = np.full((1, 1), UNKNOWN)
        patch = nothing if moment.query is None else moment.query
        size = len(patch)
        self._image.set_data(patch)
        cuts = np.arange(size + 1) / size
        self._lines.set_segments(
            [((cut, 0), (cut, 1)) for cut in cuts] + [((0, cut), (1, cut)) for cut in cuts]
        )
        self._size.set_text(
            "no window was seen completely yet" if moment.query is None else f"{size}×{size} cells"
        )


def dress(axes: Axes, origin: str) -> None:
    """Labels, whole numbers and a frame."""
    axes.set(xlabel=f"columns {origin}", ylabel=f"rows {origin}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    style.frame_all(axes)


def outlines(axes: Axes) -> LineCollection:
    """Lines for what is wanted, still none."""
    lines = LineCollection([], colors=_OUTLINE, linewidths=1.4)
    axes.add_collection(lines, autolim=False)
    return lines


def squares(target: Image, grid: int) -> list[npt.NDArray[np.float64]]:
    """The outline of every marked cell, in coordinates relative to the start."""
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    return [corners + (column, row) for row, column in np.argwhere(target >= 0.5) - grid // 2]


def extent_of(grid: int) -> tuple[float, float, float, float]:
    """Left, right, bottom, top of a map with the start at 0, 0."""
    first, last = -(grid // 2) - 0.5, grid - grid // 2 - 0.5
    return first, last, last, first
