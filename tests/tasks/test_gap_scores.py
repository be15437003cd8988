"""Close and distant priorities are scored apart."""

import itertools

import pytest
import torch

from mgmem.tasks import PrioritySort, SeedStream
from mgmem.tasks.gap_scores import GapScore


def answered(task, count):
    """A batch of ``count`` sequences and its perfect answers."""
    batch = task.episodes(SeedStream(1, "test"), 0, count).batch(0, task.length)
    return batch.targets[0] * 2 - 1, batch


def nearest(batch, place, sequence):
    """Distance from the item wanted at ``place`` to the nearest other priority."""
    priorities = sorted(batch.inputs[:, sequence, 1, 0, 0].tolist())
    own = priorities.pop(place)
    return min(abs(own - other) for other in priorities)


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_an_error_counts_where_its_item_s_nearest_priority_is(spread):
    answers, batch = answered(PrioritySort(20, spread), 8)
    answers[3, 5, 0, 1, 1] *= -1
    score = GapScore(spread)
    score.add((answers,), batch)
    gap = nearest(batch, 3, 5)
    for row in score.rows():
        wrong_bits = row.error * row.share * 20 * 8 * 9
        assert wrong_bits == pytest.approx(1.0 if row.low <= gap < row.high else 0.0, abs=1e-4)


def test_the_parts_hold_every_item_once_over_all_batches():
    score, (answers, batch) = GapScore(), answered(PrioritySort(20), 50)
    score.add((answers,), batch)
    score.add((-answers,), batch)
    rows = score.rows()
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert [row.error for row in rows] == pytest.approx([0.5] * len(rows))
    assert all(a.high <= b.low for a, b in itertools.pairwise(rows))


def test_two_items_that_are_far_apart_are_in_the_last_part_only():
    answers, batch = answered(PrioritySort(2), 1)
    batch.inputs[:, :, 1] = torch.tensor([-0.5, 0.5])[:, None, None, None]
    score = GapScore()
    score.add((answers,), batch)
    assert [(row.low, row.share) for row in score.rows()] == [(pytest.approx(0.08), 1.0)]
