"""Pictures of what a mapping memory remembers: one moment, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mgmem.report import style
from mgmem.report.map_panels import (
    MapPanel,
    QueryPanel,
    ReadingPanel,
    draw_map,
    dress,
    extent_of,
    map_handles,
    map_legend,
    memory_image,
    outlines,
    probabilities,
    squares,
    told_right,
    wanted_handle,
)
from mgmem.report.memory import UNKNOWN, WALL, History, Image, Moment
from mgmem.report.style import Axes, Figure

_PARTS = {"hidden": "hidden state h", "cell": "memory cells c"}
_READINGS = {"probed": "map by a linear probe", "believed": "map by asking the reader"}


def draw_moment(history: History, index: int = -1) -> Figure:
    """One moment: the map as explored beside the memory; below, query, target and answer.

    With maps read out of the memory, these stand at the right.
    """
    return MomentFigure(history, index).figure


class MomentFigure:
    """A picture of a moment that can be turned to another moment of the same episode."""

    def __init__(self, history: History, index: int = -1) -> None:
        self.history = history
        self._parts = [part for part in _PARTS if history.channels is not None]
        readings = _readings(history)
        self._background: Any = None
        with style.look():
            columns = (3 if self._parts else 2) + bool(readings)
            self.figure, panels = _panels(2, columns)
            below = columns if self._parts else columns - 1
            self._title = self.figure.text(
                0.5, 0.985, " ", ha="center", va="top", fontsize=14, fontweight="bold"
            )
            self._map = MapPanel(panels[0], history.grid)
            panels[0].set_title("the world as explored")
            self._memory = {
                part: self._build_memory(axes, part, getattr(history.moments[index], part))
                for part, axes in zip(self._parts, panels[1:], strict=False)
            }
            self._build_question(*panels[below : below + 3])
            self._readings = []
            for part, axes in zip(readings, panels[columns - 1 :: columns], strict=False):
                axes.set_title(_READINGS[part])
                self._readings.append(ReadingPanel(axes, history, part))
            if len(readings) == 1:
                panels[-1].set_axis_off()
            self.figure.legend(
                handles=[*map_handles(), wanted_handle()], loc="lower center",
                ncols=7 if self._parts else 4, handlelength=1.3, columnspacing=1.3,
            )  # fmt: skip
            self.show(index)

    def _build_memory(self, axes: Axes, part: str, values: Image) -> Any:
        image = memory_image(axes, values, self.history, part)
        axes.set_title(_PARTS[part])
        axes.set_xlabel(
            f"{axes.get_xlabel()}\ndeepest layer, finest grid {len(values)}×{len(values)},\n"
            f"{self.history.shown(part)}"
        )
        _bar(self.figure, axes, image)
        return image

    def _build_question(self, asked: Axes, wanted: Axes, said: Axes) -> None:
        self._query = QueryPanel(asked)
        self._target = probabilities(wanted, self.history.grid)
        self._answer = probabilities(said, self.history.grid)
        wanted.set_title("wanted: where it was seen")
        said.set_title("the memory's answer" if self._parts else "the model's answer")
        _bar(self.figure, said, self._answer, "probability")
        self._outlines = outlines(said)
        self._verdict = said.text(
            0.5, -0.19, " ", transform=said.transAxes, ha="center", va="top", fontweight="bold"
        )

    def show(self, index: int) -> None:
        """Turn to another moment."""
        moment = self.history.moments[index]
        self._map.show(moment)
        for part, image in self._memory.items():
            image.set_data(getattr(moment, part))
        for reading in self._readings:
            reading.show(moment)
        self._query.show(moment)
        self._target.set_data(moment.target)
        self._answer.set_data(moment.answer)
        self._outlines.set_segments(squares(moment.target, self.history.grid))
        self._verdict.set_text(verdict(moment))
        self._title.set_text(_title(self.history, moment))

    def pixels(self, dpi: int) -> npt.NDArray[np.uint8]:
        """The picture as (height, width, 3) bytes, both even as videos want them."""
        self._background, picture = moment_pixels(
            self.figure, self._changing(), self._background, dpi
        )
        return picture

    def _changing(self) -> list[Any]:
        """What differs from moment to moment, in the order of drawing."""
        images = [*self._memory.values(), self._target, self._answer]
        frames = [spine for image in images for spine in image.axes.spines.values()]
        read = [artist for reading in self._readings for artist in reading.artists]
        return [
            *self._map.artists, *self._query.artists, *images, *read, *frames,
            self._outlines, self._verdict, self._title,
        ]  # fmt: skip


def moment_pixels(
    figure: Figure, changing: Sequence[Any], background: Any, dpi: int
) -> tuple[Any, npt.NDArray[np.uint8]]:
    """The background to hand in again next time, and the picture: (height, width, 3) bytes.

    Axes, labels and legends stay: drawn once, then only what changes on top of them.
    """
    canvas: Any = figure.canvas
    if background is None:
        figure.set_dpi(dpi)
        with style.look():
            for artist in changing:
                artist.set_animated(True)
            canvas.draw()
            background = canvas.copy_from_bbox(figure.bbox)
            for artist in changing:
                artist.set_animated(False)
    canvas.restore_region(background)
    for artist in changing:
        artist.draw(canvas.get_renderer())
    buffer = np.asarray(canvas.buffer_rgba())
    height, width = buffer.shape[0] // 2 * 2, buffer.shape[1] // 2 * 2
    return background, np.ascontiguousarray(buffer[:height, :width, :3])


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
    """All moments side by side: explored map, memory, maps read out of it, and answer below."""
    moments = history.moments
    parts = [part for part in _PARTS if history.channels is not None]
    readings = _readings(history)
    if readings:
        parts = parts[:1]  # cells look much like the hidden state; the maps say more
    rows = 2 + len(parts) + len(readings)
    with style.look():
        figure = style.new_figure(2.3 * len(moments) + 1.4, 2.35 * rows + 1.0, squares=True)
        figure.suptitle(
            f"{history.name}: what is remembered of episode {history.episode}",
            fontsize=14, fontweight="bold",
        )  # fmt: skip
        panels = figure.subplots(rows, len(moments), squeeze=False)
        for column, moment in enumerate(moments):
            images = _strip_column(panels[:, column], history, moment, parts, readings)
            panels[0, column].set_title(f"step {moment.step + 1}")
            if column == len(moments) - 1:
                for image, row in zip(images, panels[1:], strict=True):
                    figure.colorbar(image, ax=row, shrink=0.85, pad=0.01)
        memory = [f"{_PARTS[part]}\n{history.shown(part)}" for part in parts]
        names = ["explored", *memory, *(_READINGS[part] for part in readings), "answer"]
        _strip_labels(panels, names)
        map_legend(figure, wanted_handle())
    return figure


def _readings(history: History) -> list[str]:
    """The maps that were read out of the memory."""
    return [part for part in _READINGS if getattr(history.moments[0], part) is not None]


def _strip_column(
    panels: npt.NDArray[Any],
    history: History,
    moment: Moment,
    parts: Sequence[str],
    readings: Sequence[str],
) -> list[Any]:
    """Draw a moment downwards; returns the images that need a colour bar."""
    draw_map(panels[0], history.grid, moment)
    images = [
        memory_image(axes, getattr(moment, part), history, part)
        for part, axes in zip(parts, panels[1:], strict=False)
    ]
    for part, axes in zip(readings, panels[1 + len(parts) :], strict=False):
        images.append(axes.imshow(
            getattr(moment, part), cmap=style.BELIEF, vmin=0, vmax=1, extent=extent_of(history.grid)
        ))  # fmt: skip
        dress(axes, "from the start")
        axes.set_title(told_right(moment, part), fontsize=9)
    answer = probabilities(panels[-1], history.grid)
    answer.set_data(moment.answer)
    outlines(panels[-1]).set_segments(squares(moment.target, history.grid))
    if moment.query is not None:
        # The query itself, small, in a corner that the answer's map leaves free.
        inset = panels[-1].inset_axes((0.02, 0.74, 0.24, 0.24))
        inset.imshow(moment.query, cmap=style.MAP, vmin=UNKNOWN, vmax=WALL)
        inset.set(xticks=[], yticks=[])
        style.frame_all(inset)
        for spine in inset.spines.values():
            spine.set(color="white", linewidth=1.5)
    panels[-1].set_xlabel(f"columns from the start\n{verdict(moment)}")
    return [*images, answer]


def _strip_labels(panels: npt.NDArray[Any], names: Sequence[str]) -> None:
    """Tick labels at the left and the bottom only, what a row shows at its left."""
    for axes in panels[:, 1:].flat:
        axes.set(ylabel="", yticklabels=[])
    for axes in panels[:-1].flat:
        axes.set(xlabel="", xticklabels=[])
    for axes, name in zip(panels[:, 0], names, strict=True):
        axes.set_ylabel(f"{name}\n{axes.get_ylabel()}")


def _title(history: History, moment: Moment) -> str:
    return f"{history.name}, episode {history.episode}: step {moment.step + 1} of {history.length}"


def verdict(moment: Moment) -> str:
    """How an answer did, in words."""
    if moment.query is None:
        return "not asked"
    found, missed, wrong = moment.verdict()
    return f"{found} of {found + missed} found, {wrong} wrong"
