"""The routing figure shows what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgmem.report.routing import draw_routing
from mgmem.report.style import save_figure
from mgmem.routing import Cell, reach


def _words(figure: object) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]  # type: ignore[attr-defined]


def test_every_grid_is_drawn_with_how_much_of_it_is_reached(tmp_path: Path) -> None:
    spec, source = "0-2:1 0-2:1 0-2:1", Cell(1, 2, (5, 9))
    figure = draw_routing(spec, source, (4, 4))
    pictures = figure.axes[0].images
    assert len(pictures) == 3 * 3 + 3
    linked, alone = (reach(spec, source, (4, 4), cross_scale=c) for c in (True, False))
    expected = [linked[layer][level] for level in (2, 1, 0) for layer in (1, 2, 3)]
    expected += [alone[layer][2] for layer in (1, 2, 3)]
    for picture, mask in zip(pictures, expected, strict=True):
        assert np.array_equal(~np.ma.getmaskarray(picture.get_array()), mask)
    words = _words(figure)
    assert {"layer 1", "layer 2", "layer 3", "level 2\n16×16"} <= set(words)
    assert f"{linked.share(3, 2):.0%}" in words
    assert save_figure(figure, tmp_path / "routing.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("spec", "source", "base"),
    [
        ("0-1:4 0-2:4 1-3:4 3:1", Cell(1, 1, (1,)), (1,)),
        ("0-1:4 0-2:4 1-3:4 3:1", Cell(2, 0, (2, 0)), (3, 2)),
        ("0:1", Cell(1, 0, (0, 0)), (3, 3)),
    ],
)
def test_any_mesh_can_be_drawn(
    spec: str, source: Cell, base: tuple[int, ...], tmp_path: Path
) -> None:
    assert save_figure(draw_routing(spec, source, base), tmp_path / "routing.svg").is_file()
