"""A walk in four pictures side by side: world, memory, the map it holds, its answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgmem.report import style
from mgmem.report.map_panels import MapPanel, outlines, probabilities, squares
from mgmem.report.memory import UNKNOWN, WALL, History
from mgmem.report.memory_figure import moment_pixels, verdict
from mgmem.report.style import Axes, Figure

_SIDE, _GAP, _EDGE, _TOP, _BOTTOM = 2.5, 0.16, 0.14, 0.44, 0.4  # inches


class WalkFigure:
    """Small enough for an animation; turned from moment to moment as `MomentFigure` is."""

    def __init__(self, history: History, index: int = 0) -> None:
        self.history = history
        self._reading = "believed" if history.moments[0].believed is not None else "probed"
        self._background: Any = None
        with style.look():
            self.figure, (world, memory, known, said) = _row(4)
            self._map = MapPanel(world, history.grid)
            self._memory = self._build_memory(memory)
            empty = np.full((history.grid, history.grid), np.nan)
            self._known = known.imshow(empty, cmap=style.BELIEF, vmin=0, vmax=1)
            self._answer = probabilities(said, history.grid)
            self._outlines = outlines(said)
            self._query = self._build_query(said)
            titles = ("the world as explored", "the memory", "the map it holds", "its answer")
            self._below = [
                self._bare(axes, title)
                for axes, title in zip((world, memory, known, said), titles, strict=True)
            ]
            self.show(index)

    def _build_memory(self, axes: Axes) -> Any:
        low, high = self.history.limits("hidden")
        first = self.history.moments[0].hidden
        assert first is not None
        return axes.imshow(first, cmap=style.VALUES, vmin=low, vmax=high)

    def _build_query(self, axes: Axes) -> Any:
        """The patch asked for, small, in a corner that the answer's map leaves free."""
        inset = axes.inset_axes((0.03, 0.77, 0.2, 0.2))
        image = inset.imshow(np.full((3, 3), UNKNOWN), cmap=style.MAP, vmin=UNKNOWN, vmax=WALL)
        inset.set(xticks=[], yticks=[])
        return image

    def _bare(self, axes: Axes, title: str) -> Any:
        """Without axes: a picture this small has no room for numbers. Returns the line below."""
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
        style.frame_all(axes)
        axes.set_title(title, fontsize=12, fontweight="bold", pad=6)
        return axes.text(0.5, -0.03, " ", transform=axes.transAxes, ha="center", va="top")

    def show(self, index: int) -> None:
        """Turn to another moment."""
        moment = self.history.moments[index]
        self._map.show(moment)
        self._memory.set_data(moment.hidden)
        self._known.set_data(getattr(moment, self._reading))
        self._answer.set_data(moment.answer)
        self._outlines.set_segments(squares(moment.target, self.history.grid))
        nothing = np.full((3, 3), UNKNOWN)
        self._query.set_data(nothing if moment.query is None else moment.query)
        lines = (
            f"step {moment.step + 1} of {self.history.length}",
            f"h, {self.history.shown('hidden')}",
            f"{moment.right(self._reading):.1%} of cells seen right",
            verdict(moment),
        )
        for text, line in zip(self._below, lines, strict=True):
            text.set_text(line)

    def pixels(self, dpi: int) -> Any:
        """The picture as (height, width, 3) bytes, both even as videos want them."""
        self._background, picture = moment_pixels(
            self.figure, self._changing(), self._background, dpi
        )
        return picture

    def _changing(self) -> list[Any]:
        images = [self._memory, self._known, self._answer]
        frames = [spine for image in images for spine in image.axes.spines.values()]
        return [
            *self._map.artists, *images, *frames, self._outlines, self._query,
            *self._query.axes.spines.values(), *self._below,
        ]  # fmt: skip


def _row(count: int) -> tuple[Figure, list[Axes]]:
    """Square panels beside each other at fixed places."""
    width = 2 * _EDGE + count * _SIDE + (count - 1) * _GAP
    height = _TOP + _SIDE + _BOTTOM
    figure = style.new_figure(width, height, layout=False)
    box = (_BOTTOM / height, _SIDE / width, _SIDE / height)
    lefts = [(_EDGE + index * (_SIDE + _GAP)) / width for index in range(count)]
    return figure, [figure.add_axes((left, *box)) for left in lefts]
