"""Where memories fail is drawn from the records' numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from making import make_record, read_image

from mgmem.errors import UsageError
from mgmem.report.parts import draw_parts
from mgmem.report.style import save_figure


def rows(*named):
    return [{"name": n, "share": 0.5, "precision": f, "recall": f, "f": f} for n, f in named]


PARTS = {
    "patch": rows(("1", 1.0), ("2 to 10", 0.9)),
    "age": rows(("500", 0.9), ("1,000", 0.8)),
    "distance": rows(("0 to 3", 0.9), ("4 to 7", 0.7)),
}


def test_every_recorded_memory_is_a_line_in_every_panel(tmp_path):
    records = [replace(make_record("mapping-9", [0.9]), parts=PARTS), make_record("sort-20", [0.1])]
    figure = draw_parts(records)
    patch, age, distance = figure.axes
    (line,) = age.lines
    np.testing.assert_allclose(line.get_xdata(), [0.5, 1.0])
    np.testing.assert_allclose(line.get_ydata(), [0.9, 0.8])
    np.testing.assert_allclose(distance.lines[0].get_xdata(), [3 / 7, 1.0])
    np.testing.assert_allclose(patch.lines[0].get_ydata(), [1.0, 0.9])
    assert read_image(save_figure(figure, tmp_path / "parts.png")).std() > 5


def test_without_parts_it_says_how_to_get_them():
    with pytest.raises(UsageError, match="--record"):
        draw_parts([make_record("mapping-9", [0.9])])
