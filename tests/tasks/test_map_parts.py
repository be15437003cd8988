"""Mapping is scored in parts: common and rare patches, young and old memories, near and far."""

import numpy as np
import pytest
import torch

from mgmem.tasks.base import Batch
from mgmem.tasks.map_parts import AgeParts, DistanceParts, PatchParts


def asked(patches, said, true, weight=None):
    """A batch of Q queries of one sequence: wall bits (Q, 9), said and true pixels (Q, n)."""
    walls = torch.tensor(patches, dtype=torch.float32).view(-1, 1, 1, 3, 3)
    queries = torch.cat([1 - walls, walls, torch.zeros_like(walls).repeat(1, 1, 2, 1, 1)], 2)
    answers = torch.tensor(said, dtype=torch.float32).mul(2).sub(1).view(len(patches), 1, 1, 2, -1)
    targets = torch.tensor(true, dtype=torch.float32).view_as(answers)
    empty = torch.zeros(1, 1, 4, 3, 3)
    times = torch.zeros(len(patches), dtype=torch.int64)
    return (answers,), Batch(empty, None, times, (queries,), (targets,), weight)


FREE, WALL = [0] * 9, [1] + [0] * 8


def test_each_part_of_the_ranking_has_its_own_precision_recall_and_f():
    score = PatchParts()
    true = [[1, 1, 0, 0]] * 2 + [[0, 1, 1, 1]]
    score.add(*asked([FREE, FREE, WALL], [[1, 1, 0, 0]] * 3, true), 0)
    common, rare = score.rows()
    assert (common.name, common.share, common.f) == ("1", pytest.approx(2 / 3), 1.0)
    assert (rare.name, rare.share) == ("2", pytest.approx(1 / 3))
    assert (rare.precision, rare.recall, rare.f) == (0.5, pytest.approx(1 / 3), 0.4)


def test_the_parts_hold_every_query_once_however_many_patches_there_are():
    bits = np.random.default_rng(0).integers(0, 2, (200, 9)).tolist()
    score = PatchParts()
    for start in range(0, 200, 50):
        score.add(*asked(bits[start : start + 50], [[1, 0, 0, 0]] * 50, [[1, 0, 0, 0]] * 50), 0)
    rows = score.rows()
    assert [row.name for row in rows][:3] == ["1", "2 to 10", "11 to 30"]
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert all(row.f == 1 for row in rows)


def test_queries_that_do_not_count_are_left_out():
    score = PatchParts()
    weight = torch.tensor([1.0, 0.0]).view(1, 2, 1)
    score.add(*asked([FREE, WALL], [[1, 0, 0, 0]] * 2, [[1, 0, 0, 0], [0, 1, 0, 0]], weight), 0)
    (row,) = score.rows()
    assert (row.share, row.f) == (1.0, 1.0)


def test_ages_are_steps_of_the_episode_however_it_is_cut():
    score, right = AgeParts(), [[1, 0, 0, 0]]
    answers, batch = asked([FREE], right, right)
    score.add(answers, batch, 0)
    score.add(answers, batch, 32)
    score.add(*asked([FREE], [[0, 0, 0, 0]], right), 32)
    young, old = score.rows()
    assert (young.name, young.share, young.f) == ("1", pytest.approx(1 / 3), 1.0)
    assert (old.name, old.recall, old.precision) == ("33", 0.5, 1.0)


def test_distances_are_rings_around_the_start_and_hold_every_mark_once():
    grid, start = 8, 4
    said = torch.zeros(1, 1, 1, grid, grid)
    true = torch.zeros_like(said)
    true[..., start, start] = true[..., start - 3, start + 1] = 1
    said[..., start, start] = said[..., 0, 0] = 1  # the corner is beyond reach
    score = DistanceParts(grid, reach=3)
    query, times = torch.zeros(1, 1, 4, 3, 3), torch.zeros(1, dtype=torch.int64)
    score.add((said * 2 - 1,), Batch(query, None, times, (query,), (true,)), 0)
    rows = score.rows()
    assert [row.name for row in rows] == ["0", "1", "2", "3"]
    assert [row.share for row in rows] == [0.5, 0, 0, 0.5]
    assert (rows[0].f, rows[3].precision, rows[3].recall) == (1.0, 0.0, 0.0)
