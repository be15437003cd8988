"""Pictures and animations of a memory show the numbers that were collected."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from making import read_image
from PIL import Image

from mgmem.errors import UsageError
from mgmem.report import animation, style
from mgmem.report.memory_figure import MomentFigure, draw_moment, draw_strip
from mgmem.report.walk_figure import WalkFigure


def pictures(figure):
    """Every image of a figure as an array."""
    panels = [panel for axes in figure.axes for panel in (axes, *axes.child_axes)]
    return [np.asarray(image.get_array()) for axes in panels for image in axes.images]


def shows(figure, values):
    return any(
        shown.shape == values.shape and (shown == values).all() for shown in pictures(figure)
    )


def words(figure):
    found = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        found += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in axes.texts]
    for legend in figure.legends:
        found += [text.get_text() for text in legend.get_texts()]
    return "\n".join(found)


def test_a_moment_shows_map_memory_query_target_and_answer(history, tmp_path):
    moment = history.moments[1]
    figure = draw_moment(history, 1)
    for values in (
        moment.explored,
        moment.hidden,
        moment.cell,
        moment.query,
        moment.target,
        moment.answer,
    ):
        assert shows(figure, values)
    text = words(figure)
    for word in ("mapping-9, episode 3: step 31 of 49", "hidden state", "wall", "not seen yet"):
        assert word in text
    image = read_image(style.save_figure(figure, tmp_path / "moment.png"))
    assert image.shape[0] > 900
    assert image.std() > 20


@pytest.mark.parametrize("kind", ["history", "read_history"])
def test_no_two_texts_of_a_moment_overlap(kind, request):
    figure = draw_moment(request.getfixturevalue(kind), 1)
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    shown = [figure.texts[0]]
    for axes in figure.axes:
        shown += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        if axes.axison:
            shown += [*axes.get_xticklabels(), *axes.get_yticklabels()]
    boxes = [t.get_window_extent(renderer) for t in shown if t.get_text().strip()]
    inside = figure.bbox.padded(0.5)
    for index, box in enumerate(boxes):
        assert inside.contains(box.x0, box.y0)
        assert inside.contains(box.x1, box.y1)
        assert not any(box.overlaps(other) for other in boxes[:index])


def test_a_strip_shows_every_moment(history, tmp_path):
    figure = draw_strip(history)
    for moment in history.moments:
        for values in (moment.explored, moment.hidden, moment.cell, moment.query, moment.answer):
            assert shows(figure, values)
    assert "step 6" in words(figure)
    assert read_image(style.save_figure(figure, tmp_path / "strip.png")).std() > 20


def test_maps_read_out_of_the_memory_are_shown(read_history, tmp_path):
    moment = read_history.moments[1]
    for figure in (draw_moment(read_history, 1), draw_strip(read_history)):
        for values in (moment.probed, moment.believed):
            assert any(
                shown.shape == values.shape and np.array_equal(shown, values, equal_nan=True)
                for shown in (np.ma.filled(picture, np.nan) for picture in pictures(figure))
                if shown.dtype.kind == "f"
            )
        assert f"channel {read_history.chosen[0] + 1} of 8" in words(figure)
        assert f"{moment.right('believed'):.1%} of the cells seen right" in words(figure)
    assert read_image(style.save_figure(figure, tmp_path / "read.png")).std() > 20


def test_a_walk_is_animated_as_world_memory_map_and_answer(read_history, tmp_path):
    frames = list(animation.moment_frames(read_history, 50))
    assert len(frames) == 3
    assert frames[0].shape[1] > 3 * frames[0].shape[0]
    assert (frames[0] != frames[2]).any()
    turned = WalkFigure(read_history, 0)
    turned.pixels(50)
    turned.show(2)
    np.testing.assert_array_equal(turned.pixels(50), WalkFigure(read_history, 2).pixels(50))
    text = words(turned.figure)
    for word in ("step 49 of 49", "the map it holds", "cells seen right", "found"):
        assert word in text


def test_models_without_grids_get_pictures_without_them(history, tmp_path):
    bare = tuple(replace(moment, hidden=None, cell=None) for moment in history.moments)
    without = replace(history, channels=None, moments=bare)
    for figure in (draw_strip(without), draw_moment(without)):
        assert shows(figure, bare[-1].answer)
        assert "hidden state" not in words(figure)
    read_image(style.save_figure(figure, tmp_path / "bare.png"))


def test_a_moment_without_a_question_says_so(history):
    silent = replace(history.moments[0], query=None)
    figure = draw_moment(replace(history, moments=(silent,)))
    assert "not asked" in words(figure)


def test_turning_a_picture_to_a_moment_equals_drawing_that_moment(history):
    turned = MomentFigure(history, 0)
    turned.pixels(60)
    turned.show(2)
    fresh = MomentFigure(history, 2).pixels(60)
    np.testing.assert_array_equal(turned.pixels(60), fresh)
    # And the fast way of drawing frames differs from a plain drawing by edges of lines at most.
    plain = MomentFigure(history, 2)
    plain.figure.set_dpi(60)
    plain.figure.canvas.draw()
    drawn = np.asarray(plain.figure.canvas.buffer_rgba())[: len(fresh), : fresh.shape[1], :3]
    different = (np.abs(drawn.astype(int) - fresh) > 40).any(axis=2).mean()
    assert different < 0.01


def test_a_gif_has_a_frame_for_every_moment_and_loops(history, tmp_path):
    path = animation.animate(history, tmp_path / "new" / "walk.gif", dpi=50, rate=10)
    with Image.open(path) as gif:
        assert gif.format == "GIF"
        assert gif.n_frames == 3
        assert gif.info["loop"] == 0
        assert gif.info["duration"] == 100
        frames = []
        for index in range(3):
            gif.seek(index)
            frames.append(np.asarray(gif.convert("RGB")).astype(int))
    expected = list(animation.moment_frames(history, 50))
    for frame, exact in zip(frames, expected, strict=True):
        assert np.abs(frame - exact).mean() < 4  # what a palette costs
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


@pytest.fixture
def fake_ffmpeg(tmp_path, monkeypatch):
    """A program called ffmpeg that copies its input to its last argument."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$0.said"\ncat > "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return program


def test_an_mp4_hands_all_frames_to_ffmpeg(read_history, tmp_path, fake_ffmpeg):
    path = animation.animate(read_history, tmp_path / "walk.mp4", dpi=40, rate=5)
    frames = list(animation.moment_frames(read_history, 40))
    height, width, _ = frames[0].shape
    assert height % 2 == width % 2 == 0
    content = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, height, width, 3)
    assert len(content) == 3 + 10  # the last one stays for two seconds
    for frame, shown in zip(frames, content, strict=False):
        np.testing.assert_array_equal(frame, shown)
    said = fake_ffmpeg.with_name("ffmpeg.said").read_text()
    assert f"-s {width}x{height}" in said


def test_a_failing_ffmpeg_leaves_nothing_behind(read_history, tmp_path, fake_ffmpeg):
    fake_ffmpeg.write_text("#!/bin/sh\ncat > /dev/null\necho no such codec >&2\nexit 1\n")
    with pytest.raises(UsageError, match="no such codec"):
        animation.animate(read_history, tmp_path / "walk.mp4", dpi=40)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_without_ffmpeg_an_mp4_is_refused(read_history, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs ffmpeg"):
        animation.animate(read_history, tmp_path / "walk.mp4")


@pytest.mark.parametrize(
    ("name", "rate", "words"), [("walk.avi", 8, "gif"), ("walk.gif", 0, "more than 0")]
)
def test_animations_that_can_not_be_made_are_refused(history, tmp_path, name, rate, words):
    with pytest.raises(UsageError, match=words):
        animation.animate(history, tmp_path / name, rate=rate)
    with pytest.raises(UsageError, match="at least one frame"):
        animation.save_animation([], tmp_path / "walk.gif")
