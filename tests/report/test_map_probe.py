"""Measures of the map in a memory mean what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.experiments.records import shipped_weights
from mgmem.nn.fit import fitted
from mgmem.report.map_probe import auc, best_channels, fit_probe, measure_map
from mgmem.report.moments import beliefs, collect, maze_patches, region, walkable
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.maze import make_mazes
from mgmem.tasks.seeds import SeedStream
from mgmem.training.weights import fill, load_weights

STEPS = [20, 48]


@pytest.fixture(scope="module")
def moments(mapping9):
    task, model = mapping9
    return collect(model, task, SeedStream(5, "train"), 0, 6, STEPS)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auc_is_the_chance_that_a_positive_scores_higher(pairs):
    scores = np.array([score for score, _ in pairs], float)
    positive = np.array([kind for _, kind in pairs])
    if positive.all() or not positive.any():
        assert auc(scores, positive) == 0.5
        return
    gaps = scores[positive][:, None] - scores[~positive]
    assert auc(scores, positive) == pytest.approx(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def test_collected_maps_are_the_mazes_as_far_as_seen(mapping9, moments):
    task, _ = mapping9
    walls = torch.from_numpy(make_mazes(SeedStream(5, "train").keys(0, 6), task.world))
    assert len(moments) == 12
    seen = moments.seen.view(2, 6, 9, 9)
    assert (moments.wall.view(2, 6, 9, 9) == walls)[seen].all()
    assert seen[1].all()
    assert not seen[0].all()


@torch.no_grad()
def test_what_readers_see_is_what_the_memory_hands_on(mapping9, moments):
    task, model = mapping9
    run = task.episodes(SeedStream(5, "train"), 0, 6)
    inputs = run.batch(0, run.length, torch.zeros(0, dtype=torch.int64)).inputs
    memory = model.memory
    h, _ = memory(fitted(inputs, memory.input, memory.base, model.fit))
    for mine, whole in zip(moments.outputs, h, strict=True):
        for grid, sequence in zip(mine, whole, strict=True):
            expected = torch.cat([sequence[step] for step in STEPS])
            torch.testing.assert_close(grid, expected, atol=1e-5, rtol=1e-4)


def test_a_probe_finds_a_map_that_is_there(mapping9, moments):
    """A memory whose third channel is the map, in noise."""
    task, _ = mapping9
    inside = region(task)
    hidden, cell = torch.randn_like(moments.hidden), torch.randn_like(moments.cell)
    planted = torch.zeros(len(moments), task.grid, task.grid)
    planted[:, inside, inside] = (moments.wall & moments.seen).float()
    hidden[:, 2] = -planted
    known = replace(moments, hidden=hidden, cell=cell)
    assert best_channels(known, task)[0] == 2
    said = fit_probe(known, task, reach=0).read(known, task)[:, 1]
    assert ((said > 0.5) == known.wall)[known.seen].float().mean() > 0.98


def test_a_trained_reader_believes_what_is_true():
    path = shipped_weights("mapping-9")
    task, model = find("mapping-9").build()
    fill(model, load_weights(path).tensors, path)
    seen = collect(model, task, SeedStream(5, "test"), 0, 3, [48])
    for patches in (None, maze_patches(task)):
        said, votes = beliefs(model, task, seen, patches)
        assert ((said > 0.5) == seen.wall).float().mean() > 0.97
        assert (votes > 0.5).float().mean() > 0.97


def test_patches_of_mazes_are_among_all_and_hold_the_empty_one():
    found = maze_patches(Mapping())
    assert 100 < len(found) < 180
    assert (found.flatten(1).sum(1) == 0).any()


def test_every_view_is_measured_on_the_same_cells(mapping9):
    task, model = mapping9
    measure = measure_map(model, task, episodes=2, fit_on=3)
    assert measure.episodes == 2
    views = {row.view: row for row in measure.rows}
    assert len(views) == 8
    place = views["its place alone, no memory"]
    assert place.auc > 0.7
    assert place.auc_alike == pytest.approx(0.5)
    for row in measure.rows:
        assert 0 <= row.right <= 1
        assert 0 <= row.auc <= 1


def test_what_has_no_map_is_refused(mapping9):
    task, model = mapping9
    with pytest.raises(UsageError, match="at least 1"):
        measure_map(model, task, episodes=0)
    dnc_task, dnc = find("mapping-15-dnc").build()
    with pytest.raises(UsageError, match="no grids"):
        measure_map(dnc, dnc_task, 1, 1)
    moments = collect(model, task, SeedStream(5, "train"), 0, 1, [48])
    with pytest.raises(UsageError, match="too many"):
        beliefs(model, replace(task, queries=(5,)), moments)


def test_a_maze_that_fills_the_map_is_read_without_the_border_that_is_not_there():
    task = Mapping(world=25, grid=24)
    assert region(task) == slice(0, 24)
    assert walkable(task).sum() == 23 * 23
    assert not walkable(task)[0].any()
    assert walkable(task)[23, 1:].all()
    assert walkable(Mapping(world=15, grid=24)).shape == (15, 15)
