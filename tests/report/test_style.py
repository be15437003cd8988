"""Figures are written whole, the same every time, and say what is missing."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import pytest
from making import read_image

from mgmem.errors import UsageError
from mgmem.report import style


def small_figure():
    with style.look():
        figure = style.new_figure(2, 1)
        figure.subplots().plot([0, 1], [1, 0], color=style.BLUE)
    return figure


def test_a_figure_has_the_size_that_was_asked_for(tmp_path):
    path = style.save_figure(small_figure(), tmp_path / "new" / "line.png", dpi=100)
    assert read_image(path).shape == (100, 200, 3)


@pytest.mark.parametrize(
    ("kind", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_suffix_decides_and_the_same_figure_gives_the_same_file(tmp_path, kind, begins):
    first = style.save_figure(small_figure(), tmp_path / f"one.{kind}").read_bytes()
    second = style.save_figure(small_figure(), tmp_path / f"two.{kind}").read_bytes()
    assert first.startswith(begins)
    assert first == second


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(UsageError, match="png, pdf, svg"):
        style.save_figure(small_figure(), tmp_path / "line.bmp")
    assert not list(tmp_path.iterdir())


def test_a_place_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can not be written"):
        style.save_figure(small_figure(), tmp_path / "file" / "line.png")


def test_drawing_leaves_no_settings_behind():
    before = dict(matplotlib.rcParams)
    small_figure()
    assert dict(matplotlib.rcParams) == before


_WITHOUT_MATPLOTLIB = """
import importlib, sys
sys.modules["matplotlib"] = None
from mgmem.errors import UsageError
for module in ("memory", "dnc_memory", "tables"):
    importlib.import_module(f"mgmem.report.{module}")
for module in ("style", "memory_figure", "dnc_figure", "curves", "animation", "sequences"):
    try:
        importlib.import_module(f"mgmem.report.{module}")
    except UsageError as error:
        assert "pip install mgmem[figures]" in str(error)
    else:
        raise SystemExit(f"{module} was imported")
"""


def test_without_matplotlib_the_message_says_what_to_install():
    """Collecting and tables do without; every module that draws says so."""
    subprocess.run([sys.executable, "-c", _WITHOUT_MATPLOTLIB], check=True, timeout=120)


def test_colours_of_values_grow_lighter_steadily():
    """So that they keep their order in a black and white print."""
    colors = matplotlib.colormaps[style.VALUES](range(256))[:, :3]
    lightness = colors @ [0.2126, 0.7152, 0.0722]
    assert (lightness[8:] - lightness[:-8] > 0).all()


def test_systems_have_different_colours():
    assert len(set(style.SYSTEM_COLORS.values())) == len(style.SYSTEM_COLORS)
    assert style.system_color("something else") not in style.SYSTEM_COLORS.values()
