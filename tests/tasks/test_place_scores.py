"""What was seen early and late is scored apart."""

import pytest

from mgmem.tasks import AssociativeRecall, SeedStream
from mgmem.tasks.place_scores import PlaceScore


def answered(task, count):
    """A batch of ``count`` sequences, its perfect answers, and the places asked for, from 1."""
    batch = task.episodes(SeedStream(1, "test"), 0, count).batch(0, task.length)
    items, query = batch.inputs, batch.queries[0][0]
    places = [
        next(p for p in range(task.length) if items[p, b].equal(query[b])) + 1 for b in range(count)
    ]
    return batch.targets[0] * 2 - 1, batch, places


def test_an_error_counts_at_the_place_of_the_item_that_was_named():
    answers, batch, places = answered(AssociativeRecall(6), 40)
    answers[0, 7, 0, 2, 1] *= -1
    score = PlaceScore()
    score.add((answers,), batch)
    for row in score.rows():
        wrong_bits = row.error * row.share * 40 * 9
        assert wrong_bits == pytest.approx(1.0 if row.place == places[7] else 0.0, abs=1e-4)


def test_the_places_hold_every_question_once_over_all_batches():
    answers, batch, places = answered(AssociativeRecall(6), 40)
    score = PlaceScore()
    score.add((answers,), batch)
    score.add((-answers,), batch)
    rows = score.rows()
    assert [row.place for row in rows] == sorted(set(places))
    assert [row.share for row in rows] == [pytest.approx(places.count(r.place) / 40) for r in rows]
    assert [row.error for row in rows] == pytest.approx([0.5] * len(rows))
