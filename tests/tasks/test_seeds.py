"""Random numbers belong to an episode, and splits never meet."""

import numpy as np
import pytest

from mgmem.errors import UsageError
from mgmem.tasks import SeedStream
from mgmem.tasks.seeds import SPLITS, below, distinct, draw


def test_keys_do_not_depend_on_how_they_are_asked_for():
    stream = SeedStream(7, "train")
    together = stream.keys(0, 50)
    pieces = [stream.keys(0, 13), stream.keys(13, 1), stream.keys(14, 36)]
    assert (np.concatenate(pieces) == together).all()


def test_no_two_episodes_of_any_split_share_a_key():
    keys = np.concatenate([SeedStream(3, split).keys(0, 100_000) for split in SPLITS])
    assert len(np.unique(keys)) == 300_000


def test_splits_are_disjoint_whatever_the_seeds():
    train = {int(key) for root in range(50) for key in SeedStream(root, "train").keys(0, 500)}
    for split in ("valid", "test"):
        other = {int(key) for root in range(50) for key in SeedStream(root, split).keys(0, 500)}
        assert not train & other
        # The split can be read off the key, so no seed, however large, can make them meet.
        ids = {int(key) >> 62 for key in SeedStream(2**80 + 1, split).keys(2**40, 100)}
        assert ids == {SPLITS.index(split)}
    assert {key >> 62 for key in train} == {0}


def test_seeds_give_different_keys():
    assert not np.intersect1d(
        SeedStream(0, "train").keys(0, 1000), SeedStream(1, "train").keys(0, 1000)
    ).size


@pytest.mark.parametrize(
    ("root", "split", "word"), [(-1, "train", "-1"), (0, "holdout", "holdout")]
)
def test_impossible_streams_are_refused(root, split, word):
    with pytest.raises(UsageError, match=word):
        SeedStream(root, split)


def test_impossible_episode_numbers_are_refused():
    with pytest.raises(UsageError, match="-3"):
        SeedStream(0, "train").keys(-3, 4)
    with pytest.raises(UsageError, match="at least 1"):
        SeedStream(0, "train").keys(0, 0)


def test_draws_differ_by_key_purpose_and_counter():
    keys = SeedStream(0, "train").keys(0, 100)
    one = draw(keys, "a", np.arange(100)[:, None])
    other = draw(keys, "b", np.arange(100)[:, None])
    assert len(np.unique(np.concatenate([one, other]))) == 20_000


def test_bits_are_fair_and_unrelated_to_their_neighbours():
    keys = SeedStream(0, "train").keys(0, 300)
    words = draw(keys, "fairness", np.arange(300)[:, None])
    bits = (words[..., None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    bits = bits.astype(np.float64) * 2 - 1
    deviation = 1 / np.sqrt(90_000)
    assert abs(bits.mean((0, 1))).max() < 5 * deviation
    assert abs((bits[1:] * bits[:-1]).mean((0, 1))).max() < 5 * deviation
    assert abs((bits[:, 1:] * bits[:, :-1]).mean((0, 1))).max() < 5 * deviation


def test_below_is_uniform():
    values = below(draw(SeedStream(0, "train").keys(0, 60_000), "dice", 0), 6)
    assert (values.min(), values.max()) == (0, 5)
    assert abs(np.bincount(values) - 10_000).max() < 5 * np.sqrt(60_000 * 5 / 36)


def test_distinct_values_are_distinct_uniform_and_cover_everything():
    keys = SeedStream(0, "train").keys(0, 20_000)
    values = distinct(keys, "urn", 3, 5)
    ordered = np.sort(values, axis=0)
    assert (np.diff(ordered, axis=0) > 0).all()
    triples = values[0] * 25 + values[1] * 5 + values[2]
    kinds, counts = np.unique(triples, return_counts=True)
    assert len(kinds) == 60  # all ordered triples of five things
    assert abs(counts - 20_000 / 60).max() < 5 * np.sqrt(20_000 / 60)
    everything = distinct(keys[:10], "all", 9, 9)
    assert (np.sort(everything, axis=0) == np.arange(9)[:, None]).all()
