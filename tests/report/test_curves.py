"""Curves show the records' numbers, comparable systems together."""

from __future__ import annotations

import numpy as np
import pytest
from making import make_record, read_image

from mgmem.errors import UsageError
from mgmem.report import style
from mgmem.report.curves import draw_learning_curves, draw_scaling
from mgmem.report.style import save_figure

RECORDS = [
    make_record("recall-10", [0.4, 0.1, 0.01], metric="error"),
    make_record("mapping-15-small", [0.3, 0.9, 0.99]),
    make_record("mapping-15-dnc", [0.1, 0.2, 0.4], hours=4.0),
    make_record("recall-10", [0.4, 0.2, 0.02], metric="error", seed=1),
]


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_systems_on_one_task_share_a_row_and_are_drawn_twice(tmp_path):
    figure = draw_learning_curves(RECORDS)
    steps, hours, recall_steps, _ = figure.axes
    assert set(lines(steps)) == {
        "mapping-15-small",
        "mapping-15-dnc",
        "paper, mapping-15-small",
        "paper, mapping-15-dnc",
    }
    multigrid, dnc = lines(steps)["mapping-15-small"], lines(hours)["mapping-15-dnc"]
    np.testing.assert_allclose(multigrid.get_xdata(), [1000, 2000, 3000])
    np.testing.assert_allclose(multigrid.get_ydata(), [0.3, 0.9, 0.99])
    np.testing.assert_allclose(dnc.get_xdata(), np.array([1, 2, 3]) * 4 / 3)
    assert multigrid.get_color() == style.SYSTEM_COLORS["multigrid"]
    assert dnc.get_color() == style.SYSTEM_COLORS["dnc"]
    paper = lines(steps)["paper, mapping-15-small"]
    np.testing.assert_allclose(paper.get_ydata(), 0.9983)
    assert {"recall-10 (fast, seed 0)", "recall-10 (fast, seed 1)"} <= set(lines(recall_steps))
    assert recall_steps.get_yscale() == "log"
    assert "steps" in steps.get_xlabel()
    assert "hours" in hours.get_xlabel()
    assert read_image(save_figure(figure, tmp_path / "curves.png")).std() > 10


def test_only_tasks_of_several_systems_are_drawn_if_asked_for():
    steps, hours = draw_learning_curves(RECORDS, compared=True).axes
    assert {"mapping-15-small", "mapping-15-dnc"} <= set(lines(hours))
    assert (steps.get_xscale(), hours.get_xscale()) == ("log", "linear")
    with pytest.raises(UsageError, match="--compared"):
        draw_learning_curves([RECORDS[0], RECORDS[3]], compared=True)


def test_records_without_curves_are_left_out_and_none_at_all_is_an_error():
    bare = make_record("mapping-9", [0.5])
    bare.curve.clear()
    assert len(draw_learning_curves([bare, RECORDS[0]]).axes) == 2
    with pytest.raises(UsageError, match="--record"):
        draw_learning_curves([bare])


def test_records_of_unknown_experiments_are_an_error():
    with pytest.raises(UsageError, match="no experiment"):
        draw_learning_curves([make_record("mapping-1000", [0.5])])


def test_scaling_is_drawn_on_logarithmic_axes_with_guides(tmp_path):
    sizes = [1_000, 10_000, 100_000]
    rows = [{"system": "multigrid", "cells": n, "seconds": 1e-7 * n, "bytes": 8 * n} for n in sizes]
    rows += [
        {"system": "dnc", "cells": n, "seconds": 1e-10 * n**2, "bytes": n**2} for n in sizes[::-1]
    ]
    figure = draw_scaling(rows)
    time, space = figure.axes
    for axes in (time, space):
        assert axes.get_xscale() == axes.get_yscale() == "log"
    np.testing.assert_allclose(lines(time)["multigrid memory"].get_ydata(), [0.1, 1, 10])
    np.testing.assert_allclose(lines(space)["DNC"].get_ydata(), [1, 100, 10_000])
    for name, power in (("linear", 1), ("quadratic", 2)):
        x, y = lines(time)[name].get_data()
        assert np.polyfit(np.log(x), np.log(y), 1)[0] == pytest.approx(power)
    assert read_image(save_figure(figure, tmp_path / "scaling.png")).std() > 10


def test_one_measured_size_is_enough_and_none_is_not():
    draw_scaling([{"system": "dnc", "cells": 1_000, "seconds": 1e-3, "bytes": 100}])
    with pytest.raises(UsageError, match="at least one size"):
        draw_scaling([])
