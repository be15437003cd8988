"""Pictures of what a mapping memory remembers: one moment, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mgmem.report import style
from mgmem.report.memory import FREE, UNKNOWN, WALL, History, Image, Moment
from mgmem.report.style import Axes, Figure, Line2D, LineCollection, MaxNLocator, Patch

_OUTLINE = "#FF6F00"
_PARTS = {"hidden": "hidden state h", "cell": "memory cells c"}


def draw_moment(history: History, index: int = -1) -> Figure:
    """One moment: the map as explored beside the memory; below, query, target and answer."""
    return MomentFigure(history, index).figure


class MomentFigure:
    """A picture of a moment that can be turned to another moment of the same episode."""

    def __init__(self, history: History, index: int = -1) -> None:
        self.history = history
        self._parts = [part for part in _PARTS if history.channels is not None]
        self._background: Any = None
        with style.look():
            self.figure, panels = _panels(2, 3 if self._parts else 2)
            self._title = self.figure.text(
                0.5, 0.985, " ", ha="center", va="top", fontsize=14, fontweight="bold"
            )
            self._map = _Map(panels[0], history.grid)
            panels[0].set_title("the world as explored")
            self._memory = {
                part: self._build_memory(axes, part, getattr(history.moments[index], part))
                for part, axes in zip(self._parts, panels[1:], strict=False)
            }
            self._build_question(*panels[-3:])
            self.figure.legend(
                handles=[*_map_handles(), _wanted_handle()], loc="lower center",
                ncols=7 if self._parts else 4, handlelength=1.3, columnspacing=1.3,
            )  # fmt: skip
            self.show(index)

    def _build_memory(self, axes: Axes, part: str, values: Image) -> Any:
        image = _memory_image(axes, values, self.history, part)
        axes.set_title(_PARTS[part])
        axes.set_xlabel(
            f"{axes.get_xlabel()}\ndeepest layer, finest grid {len(values)}×{len(values)},\n"
            f"mean of {self.history.channels} channels"
        )
        _bar(self.figure, axes, image)
        return image

    def _build_question(self, asked: Axes, wanted: Axes, said: Axes) -> None:
        self._query = _Query(asked)
        self._target = _probabilities(wanted, self.history.grid)
        self._answer = _probabilities(said, self.history.grid)
        wanted.set_title("wanted: where it was seen")
        said.set_title("the memory's answer" if self._parts else "the model's answer")
        _bar(self.figure, said, self._answer, "probability")
        self._outlines = _outlines(said)
        self._verdict = said.text(
            0.5, -0.19, " ", transform=said.transAxes, ha="center", va="top", fontweight="bold"
        )

    def show(self, index: int) -> None:
        """Turn to another moment."""
        moment = self.history.moments[index]
        self._map.show(moment)
        for part, image in self._memory.items():
            image.set_data(getattr(moment, part))
        self._query.show(moment)
        self._target.set_data(moment.target)
        self._answer.set_data(moment.answer)
        self._outlines.set_segments(_squares(moment.target, self.history.grid))
        self._verdict.set_text(_verdict(moment))
        self._title.set_text(_title(self.history, moment))

    def pixels(self, dpi: int) -> npt.NDArray[np.uint8]:
        """The picture as (height, width, 3) bytes, both even as videos want them."""
        canvas: Any = self.figure.canvas
        changing = self._changing()
        if self._background is None:
            # Axes, labels and legends stay: drawn once, then only what changes on top of them.
            self.figure.set_dpi(dpi)
            with style.look():
                for artist in changing:
                    artist.set_animated(True)
                canvas.draw()
                self._background = canvas.copy_from_bbox(self.figure.bbox)
                for artist in changing:
                    artist.set_animated(False)
        canvas.restore_region(self._background)
        for artist in changing:
            artist.draw(canvas.get_renderer())
        buffer = np.asarray(canvas.buffer_rgba())
        height, width = buffer.shape[0] // 2 * 2, buffer.shape[1] // 2 * 2
        return np.ascontiguousarray(buffer[:height, :width, :3])

    def _changing(self) -> list[Any]:
        """What differs from moment to moment, in the order of drawing."""
        images = [*self._memory.values(), self._target, self._answer]
        frames = [spine for image in images for spine in image.axes.spines.values()]
        return [
            *self._map.artists, *self._query.artists, *images, *frames,
            self._outlines, self._verdict, self._title,
        ]  # fmt: skip


def _panels(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """Square panels at fixed places: in an animation nothing may move from frame to frame."""
    side, left, right, top, below, between = 2.8, 0.7, 0.95, 0.85, 1.3, 1.3  # inches
    width = left + columns * side + (columns - 1) * between + right
    height = top + rows * (side + below) - 0.05
    figure = style.new_figure(width, height, layout=False)
    panels = []
    for row in range(rows):
        for column in range(columns):
            x, y = left + column * (side + between), height - top - side - row * (side + below)
            panels.append(figure.add_axes((x / width, y / height, side / width, side / height)))
    return figure, panels


def _bar(figure: Figure, axes: Axes, image: Any, label: str = "") -> None:
    """A colour bar just right of a panel."""
    figure.colorbar(image, cax=axes.inset_axes((1.025, 0.1, 0.035, 0.8)), label=label)


def draw_strip(history: History) -> Figure:
    """All moments side by side: explored map, hidden state, cells and answer below each other."""
    moments = history.moments
    parts = [part for part in _PARTS if history.channels is not None]
    rows = 2 + len(parts)
    with style.look():
        figure = style.new_figure(2.3 * len(moments) + 1.4, 2.35 * rows + 1.0, squares=True)
        figure.suptitle(
            f"{history.name}: what is remembered of episode {history.episode}",
            fontsize=14, fontweight="bold",
        )  # fmt: skip
        panels = figure.subplots(rows, len(moments), squeeze=False)
        for column, moment in enumerate(moments):
            images = _strip_column(panels[:, column], history, moment, parts)
            panels[0, column].set_title(f"step {moment.step + 1}")
            if column == len(moments) - 1:
                for image, row in zip(images, panels[1:], strict=True):
                    figure.colorbar(image, ax=row, shrink=0.85, pad=0.01)
        names = ["explored", *(_PARTS[part] for part in parts), "answer"]
        _strip_labels(panels, names)
        map_legend(figure, _wanted_handle())
    return figure


def _strip_column(
    panels: npt.NDArray[Any], history: History, moment: Moment, parts: Sequence[str]
) -> list[Any]:
    """Draw a moment downwards; returns the images that need a colour bar."""
    draw_map(panels[0], history.grid, moment)
    images = [
        _memory_image(axes, getattr(moment, part), history, part)
        for part, axes in zip(parts, panels[1:], strict=False)
    ]
    answer = _probabilities(panels[-1], history.grid)
    answer.set_data(moment.answer)
    _outlines(panels[-1]).set_segments(_squares(moment.target, history.grid))
    if moment.query is not None:
        # The query itself, small, in a corner that the answer's map leaves free.
        inset = panels[-1].inset_axes((0.02, 0.74, 0.24, 0.24))
        inset.imshow(moment.query, cmap=style.MAP, vmin=UNKNOWN, vmax=WALL)
        inset.set(xticks=[], yticks=[])
        style.frame_all(inset)
        for spine in inset.spines.values():
            spine.set(color="white", linewidth=1.5)
    panels[-1].set_xlabel(f"columns from the start\n{_verdict(moment)}")
    return [*images, answer]


def _strip_labels(panels: npt.NDArray[Any], names: Sequence[str]) -> None:
    """Tick labels at the left and the bottom only, what a row shows at its left."""
    for axes in panels[:, 1:].flat:
        axes.set(ylabel="", yticklabels=[])
    for axes in panels[:-1].flat:
        axes.set(xlabel="", xticklabels=[])
    for axes, name in zip(panels[:, 0], names, strict=True):
        axes.set_ylabel(f"{name}\n{axes.get_ylabel()}")


def draw_map(axes: Axes, grid: int, moment: Moment) -> None:
    """The world as explored by a moment, with the agent and its path."""
    _Map(axes, grid).show(moment)


def map_legend(figure: Any, *more: Any) -> None:
    """What is what on a map, below everything else."""
    figure.legend(
        handles=[*_map_handles(), *more], loc="outside lower center", ncols=7,
        handlelength=1.3, columnspacing=1.3,
    )  # fmt: skip


class _Map:
    """The explored world with the agent's path on it."""

    def __init__(self, axes: Axes, grid: int) -> None:
        extent = _extent(grid)
        empty = np.full((grid, grid), UNKNOWN)
        self._image = axes.imshow(empty, cmap=style.MAP, vmin=UNKNOWN, vmax=WALL, extent=extent)
        (self._path,) = axes.plot([], [], color=style.BLUE, linewidth=1.3)
        (self._start,) = axes.plot(0, 0, "s", color=style.BLUE, markersize=4)
        (self._agent,) = axes.plot(
            [], [], "o", color=_OUTLINE, markeredgecolor="white", markersize=8
        )
        _dress(axes, "from the start")
        self._half = grid // 2
        self.artists = [self._image, self._path, self._start, self._agent, *axes.spines.values()]

    def show(self, moment: Moment) -> None:
        rows, columns = (moment.path - self._half).T
        self._image.set_data(moment.explored)
        self._path.set_data(columns, rows)
        self._agent.set_data(columns[-1:], rows[-1:])


def _map_handles() -> list[Any]:
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


def _wanted_handle() -> Patch:
    return Patch(facecolor="none", edgecolor=_OUTLINE, linewidth=1.4, label="wanted answer")


def _memory_image(axes: Axes, values: Image, history: History, part: str) -> Any:
    low, high = history.limits(part)
    side = len(values)
    same = side == history.grid
    extent = _extent(side) if same else (-0.5, side - 0.5, side - 0.5, -0.5)
    image = axes.imshow(values, cmap=style.VALUES, vmin=low, vmax=high, extent=extent)
    # Where the two grids have one size, memory lies in register with the map: same axes.
    origin = "from the start" if same else "of the grid"
    _dress(axes, origin)
    return image


def _probabilities(axes: Axes, grid: int) -> Any:
    empty = np.zeros((grid, grid))
    image = axes.imshow(empty, cmap=style.VALUES, vmin=0, vmax=1, extent=_extent(grid))
    _dress(axes, "from the start")
    return image


class _Query:
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


def _dress(axes: Axes, origin: str) -> None:
    """Labels, whole numbers and a frame."""
    axes.set(xlabel=f"columns {origin}", ylabel=f"rows {origin}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    style.frame_all(axes)


def _outlines(axes: Axes) -> LineCollection:
    lines = LineCollection([], colors=_OUTLINE, linewidths=1.4)
    axes.add_collection(lines, autolim=False)
    return lines


def _squares(target: Image, grid: int) -> list[npt.NDArray[np.float64]]:
    """The outline of every marked cell, in coordinates relative to the start."""
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    return [corners + (column, row) for row, column in np.argwhere(target >= 0.5) - grid // 2]


def _extent(grid: int) -> tuple[float, float, float, float]:
    """Left, right, bottom, top of a map with the start at 0, 0."""
    first, last = -(grid // 2) - 0.5, grid - grid // 2 - 0.5
    return first, last, last, first


def _title(history: History, moment: Moment) -> str:
    return f"{history.name}, episode {history.episode}: step {moment.step + 1} of {history.length}"


def _verdict(moment: Moment) -> str:
    if moment.query is None:
        return "not asked"
    found, missed, wrong = moment.verdict()
    return f"{found} of {found + missed} found, {wrong} wrong"
