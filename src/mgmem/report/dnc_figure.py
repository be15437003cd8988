"""The picture of a DNC's memory: its matrix at several moments, and its writes over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgmem.report import style
from mgmem.report.dnc_memory import DNCHistory
from mgmem.report.map_panels import draw_map, map_legend
from mgmem.report.memory import History
from mgmem.report.style import Axes, Figure


def draw_dnc_memory(trace: DNCHistory, history: History) -> Figure:
    """Explored maps above the memory matrix at the moments of ``history``; writes below.

    ``history`` is of the same episode, from `memory.remember` with the same model.
    """
    moments = history.moments
    slots = trace.matrix.shape[1]
    with style.look():
        figure = style.new_figure(max(8.0, 2.3 * len(moments) + 1.4), 9.6)
        figure.suptitle(
            f"{trace.name}: a DNC's memory in episode {trace.episode}",
            fontsize=14, fontweight="bold",
        )  # fmt: skip
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.35, 1))
        above, below = halves
        panels = above.subplots(2, len(moments), squeeze=False, height_ratios=(1, 1.25))
        limit = float(np.abs(trace.matrix).max()) or 1.0
        for column, moment in enumerate(moments):
            draw_map(panels[0, column], history.grid, moment)
            panels[0, column].set_title(f"step {moment.step + 1}")
            image = panels[1, column].imshow(
                np.abs(trace.matrix[moment.step]), cmap=style.VALUES, vmin=0, vmax=limit,
                extent=(-0.5, trace.matrix.shape[2] - 0.5, slots, 0), aspect="auto",
                interpolation="antialiased",
            )  # fmt: skip
            panels[1, column].set_xlabel("element")
            for axes in panels[:, column][: None if column else 0]:
                axes.set(ylabel="", yticklabels=[])
        panels[1, 0].set_ylabel("memory matrix\nslot")
        above.colorbar(image, ax=panels[1], pad=0.01, label="magnitude")
        map_legend(figure)
        _writes(below.subplots(1, 2, sharey=True), below, trace, moments)
    return figure


def _writes(panels: Any, figure: Any, trace: DNCHistory, moments: Any) -> None:
    """Write weights, and how much each slot holds, over time: (slots, T) each."""
    held = np.linalg.norm(trace.matrix, axis=2)
    parts = (
        ("write weights", trace.write_weights, "weight"),
        ("what each slot holds", held, "norm of the slot"),
    )
    for axes, (title, values, label) in zip(panels, parts, strict=True):
        image = _over_time(axes, values)
        axes.set_title(title)
        figure.colorbar(image, ax=axes, pad=0.01, label=label)
        for moment in moments:
            axes.axvline(moment.step + 1, color="white", linewidth=0.8, linestyle=":")
    panels[0].set_ylabel("slot")


def _over_time(axes: Axes, values: Any) -> Any:
    steps, slots = values.shape
    image = axes.imshow(
        values.T, cmap=style.VALUES, vmin=0, vmax=float(values.max()) or 1.0, aspect="auto",
        extent=(0.5, steps + 0.5, slots, 0), interpolation="antialiased",
    )  # fmt: skip
    axes.set_xlabel("step")
    style.frame_all(axes)
    return image
