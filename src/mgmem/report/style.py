"""One look for all figures, and the one way to write them.

Importing this needs matplotlib, the extra "figures". Figures are plain objects with their own
canvas: nothing here touches pyplot or leaves settings behind.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mgmem.errors import UsageError
from mgmem.training.checkpoint import write_atomically

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import EngFormatter, MaxNLocator
except ImportError as error:
    raise UsageError(
        f"figures need matplotlib and Pillow ({error}): run `pip install mgmem[figures]`"
    ) from None

# The other figures take these names from here, and with them the error above.
__all__ = [
    "Axes",
    "EngFormatter",
    "Figure",
    "Line2D",
    "LineCollection",
    "MaxNLocator",
    "Patch",
    "Rectangle",
    "frame_all",
    "look",
    "new_figure",
    "save_figure",
    "system_color",
    "write_file",
]

# The colours of Okabe and Ito: distinct under every common colour blindness.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8A8F98"

LINE_COLORS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK, GREY)
"""For lines that are no systems, in turn."""

SYSTEM_COLORS = {
    "multigrid": BLUE,
    "dnc": VERMILLION,
    "ablated": GREEN,
    "conv-lstm-deep": ORANGE,
    "conv-lstm-thick": SKY,
    "lstm": PURPLE,
    "transformer": BLACK,
}
"""The same system has the same colour in every figure."""

VALUES = "cividis"
"""Colour map of numbers: lightness alone carries it, so it survives print and colour blindness."""

UNKNOWN_COLOR, FREE_COLOR, WALL_COLOR = "#C3C9D3", "#FFFFFF", "#2B3440"
MAP = ListedColormap([UNKNOWN_COLOR, FREE_COLOR, WALL_COLOR])
"""Colour map of worlds: 0 not seen yet, 1 free, 2 wall."""
BELIEF = LinearSegmentedColormap.from_list("belief", [FREE_COLOR, WALL_COLOR]).with_extremes(
    bad=UNKNOWN_COLOR
)
"""Colour map of what is believed to be a wall, from 0 to 1; not a number: not known."""

_FORMATS = ("png", "pdf", "svg")

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 10,
    "axes.edgecolor": "#444B55",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.color": "#444B55",
    "ytick.color": "#444B55",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "grid.color": "#D9DDE3",
    "grid.linewidth": 0.7,
    "image.interpolation": "nearest",
    "svg.hashsalt": "mgmem",
}


@contextmanager
def look() -> Iterator[None]:
    """Draw inside this block with the settings that all figures share."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(
    width: float, height: float, *, squares: bool = False, layout: bool = True
) -> Figure:
    """An empty figure of so many inches, laid out so that nothing overlaps.

    squares: panels of a fixed shape move together. layout: False leaves the places to the caller.
    """
    engine = ConstrainedLayoutEngine(compress=squares) if layout else None
    figure = Figure(figsize=(width, height), layout=engine, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def frame_all(axes: Axes) -> None:
    """A box on all four sides, for pictures; curves go without."""
    for spine in axes.spines.values():
        spine.set_visible(True)


def system_color(system: str) -> str:
    """The colour of a system; one not named in the list is grey."""
    return SYSTEM_COLORS.get(system, GREY)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure whole or not at all, as the file's suffix says: png, pdf or svg."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise UsageError(f"{path}: a figure is written as {', '.join(_FORMATS)}; name it so")
    buffer = io.BytesIO()
    with look():
        # Dates and versions in the file would make two identical pictures differ.
        stamp: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=stamp.get(kind, {"Date": None}))
    return write_file(path, buffer.getvalue())


def write_file(path: Path, content: bytes) -> Path:
    """Write a file whole, making its folder; a place that can not be written is a clear error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise UsageError(f"{path} can not be written ({error.strerror}): give another") from None
    return path
