"""What is trained on next is a pure function of the position, whatever the number of processes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgmem.errors import UsageError
from mgmem.tasks import AssociativeRecall, Mapping, SeedStream
from mgmem.training.feed import Growth, Share
from mgmem.training.sequences import Sequences
from mgmem.training.walks import Queries, Walks, even_chunk

TASK = Mapping(world=9, grid=12)
WALKS = Walks(groups=4, chunk=10, queries=Queries(share=0.3))
ANYWHERE = Walks(
    groups=2,
    chunk=49,
    anywhere=True,
    growth=Growth(7, goal=0.5),
    queries=Queries(share=0.5, limit=9, since=0.5, rare=0.5),
)
TURNS = replace(WALKS, motions=("spiral", "curious"))
RECALL, SEQUENCES = AssociativeRecall(5), Sequences()


def make(task, lesson, seed=0, batch=8, share=None):
    return lesson.feed(task, SeedStream(seed, "train"), batch, share or Share())


def heard(score):
    """Marks of a batch whose queries were answered so well."""
    return torch.tensor([[4 * score, 4.0]])


def same(one, other):
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.times, other.times)
    assert (one.reset is None) == (other.reset is None)
    if one.reset is not None:
        assert torch.equal(one.reset, other.reset)
    for a, b in zip(one.queries + one.targets, other.queries + other.targets, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("task", "lesson"), [(TASK, WALKS), (TASK, ANYWHERE), (TASK, TURNS), (RECALL, SEQUENCES)]
)
def test_a_feed_goes_on_from_a_saved_position_with_the_same_batches(task, lesson):
    feed = make(task, lesson, 3)
    for _ in range(7):
        feed.next()
        feed.hear(heard(0.9))
    saved = feed.state_dict()
    expected = [feed.next() for _ in range(6)]
    other = make(task, lesson, 3)
    other.load_state_dict(saved)
    for batch in expected:
        same(batch, other.next())


def test_growth_ends_where_it_is_told_and_counts_as_whole_there():
    growth = Growth(3, factor=2.0, goal=0.0, end=10)
    feed = make(TASK, Walks(chunk=49, anywhere=True, growth=growth), batch=2)
    lengths = []
    for _ in range(5):
        lengths.append((len(feed.next().inputs), feed.horizon.growing))
        feed.hear(heard(1.0))
    assert lengths == [(3, 3), (6, 6), (10, None), (10, None), (10, None)]


def test_tasks_that_read_after_get_whole_fresh_episodes():
    feed = make(RECALL, SEQUENCES)
    assert not feed.carries_state
    first, second = feed.next(), feed.next()
    assert first.inputs.shape[:2] == (5, 8)
    assert not torch.equal(first.inputs, second.inputs)
    assert set(first.episode.tolist()).isdisjoint(second.episode.tolist())


def test_groups_are_at_different_places_of_their_episodes():
    feed = make(TASK, WALKS)
    for _ in range(20):
        feed.next()
    positions = {position for _, _, position in feed.state_dict()["groups"]}
    assert len(positions) > 1


def test_groups_move_in_turn_as_the_lesson_says():
    random = Mapping(world=9, grid=12, motion="random", path_length=40)
    curious = replace(random, motion="curious")
    lesson = replace(WALKS, chunk=40, motions=("curious", "random"))
    batch = make(random, lesson).next()
    stream, own = SeedStream(0, "train"), batch.inputs[:10].split(2, dim=1)
    for index, task in enumerate([curious, random, curious, random]):
        expected = task.episodes(stream, 2 * index, 2).batch(0, 10).inputs
        assert torch.equal(own[index], expected)


def test_memory_is_reset_exactly_where_an_episode_begins():
    feed = make(TASK, WALKS)
    episodes = None
    for _ in range(15):
        batch = feed.next()
        begun = torch.ones(8, dtype=torch.bool) if episodes is None else batch.episode != episodes
        reset = torch.zeros(8, dtype=torch.bool) if batch.reset is None else batch.reset[0]
        assert torch.equal(reset, begun)
        if batch.reset is not None:
            assert not batch.reset[1:].any()
        episodes = batch.episode


def test_a_chunk_that_passes_the_end_counts_only_queries_before_it():
    feed = make(TASK, Walks(chunk=20, queries=Queries(share=1.0)), batch=2)
    counted = [float(feed.next().counted()) for _ in range(3)]
    # 49 steps in three chunks of 17, 17 and 15, for two sequences.
    assert counted == [34.0, 34.0, 30.0]


@given(horizon=st.integers(1, 600), longest=st.integers(1, 600))
def test_chunks_are_as_few_as_possible_and_even(horizon, longest):
    length = even_chunk(horizon, longest)
    chunks = -(-horizon // length)
    assert length <= longest
    assert chunks == -(-horizon // longest)
    assert horizon - (chunks - 1) * length > 0 or chunks == 1
    # No chunk is more than the number of chunks shorter than the others.
    assert length - (horizon - (chunks - 1) * length) < chunks


def test_the_horizon_grows_only_once_the_score_meets_the_goal_and_says_how_near_it_is():
    feed = make(TASK, Walks(groups=2, chunk=8, growth=Growth(8, goal=0.8)), batch=4)
    for _ in range(200):
        feed.hear(heard(0.7))
    assert feed.horizon.growing == 8
    assert str(feed.horizon) == "horizon 8 (score 0.70 of 0.8)"
    for _ in range(200):
        feed.hear(heard(0.95))
    assert feed.horizon.growing is None
    assert str(feed.horizon) == ""
    assert len(feed.next().inputs) == 7  # 49 steps in seven chunks


def test_stretches_begin_anywhere_and_lengthen():
    feed = make(TASK, ANYWHERE)
    lengths, places = [], set()
    for _ in range(120):
        batch = feed.next()
        feed.hear(heard(1.0))
        lengths.append(len(batch.inputs))
        places |= {tuple(place) for place in batch.inputs[0, :, 2:, 0, 0].tolist()}
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (7, TASK.episode_length)
    assert len(places) > 20


def test_queries_are_late_and_limited_where_the_recipe_says_so():
    feed = make(TASK, ANYWHERE)
    assert all(feed.next().times.tolist() == [3, 4, 5, 6] for _ in range(3))
    for _ in range(100):
        feed.hear(heard(1.0))
    times = [feed.next().times for _ in range(5)][-1]
    assert len(times) == 9
    assert int(times.min()) >= TASK.episode_length // 2


def test_sequences_are_short_until_the_score_meets_the_goal():
    feed = make(RECALL, Sequences(growth=Growth(2, goal=0.9)))
    lengths = []
    for _ in range(300):
        lengths.append(len(feed.next().inputs))
        feed.hear(heard(1.0))
    assert sorted(set(lengths)) == [2, 3, 4, 5]
    assert lengths == sorted(lengths)
    again = make(RECALL, Sequences(growth=Growth(2, goal=0.9)))
    again.load_state_dict(feed.state_dict())
    assert torch.equal(again.next().inputs, feed.next().inputs)


@pytest.mark.parametrize(("task", "lesson"), [(TASK, WALKS), (RECALL, SEQUENCES)])
def test_processes_together_see_the_batch_of_one(task, lesson):
    whole = make(task, lesson, 5)
    parts = [make(task, lesson, 5, share=Share(rank, 2)) for rank in range(2)]
    for _ in range(6):
        expected = whole.next()
        batches = [part.next() for part in parts]
        numbers = torch.cat([batch.episode for batch in batches])
        assert sorted(numbers.tolist()) == sorted(expected.episode.tolist())
        order = torch.argsort(numbers)
        inputs = torch.cat([batch.inputs for batch in batches], 1)[:, order]
        assert torch.equal(inputs, expected.inputs[:, torch.argsort(expected.episode)])


def test_processes_that_do_not_divide_a_group_are_refused():
    with pytest.raises(UsageError, match="3 processes"):
        make(TASK, WALKS, share=Share(0, 3))


def test_a_share_of_queries_is_early_all_the_same():
    lesson = Walks(chunk=49, queries=Queries(share=0.4, since=0.5, early=0.25))
    times = make(TASK, lesson).next().times
    assert len(times) == len(set(times.tolist())) == 20
    assert int((times < 24).sum()) == 5


def test_stages_have_streams_of_their_own():
    first, second = (SeedStream(0, "train", stage) for stage in (0, 1))
    assert not set(first.keys(0, 1000).tolist()) & set(second.keys(0, 1000).tolist())
    assert SeedStream(0, "train") == first


@pytest.mark.parametrize(("task", "lesson"), [(TASK, SEQUENCES), (RECALL, WALKS)])
def test_a_lesson_that_does_not_suit_a_task_is_refused(task, lesson):
    with pytest.raises(UsageError, match="can not be practised"):
        make(task, lesson)


def test_groups_divide_the_batch():
    with pytest.raises(UsageError, match="4 groups do not divide a batch of 10"):
        make(TASK, WALKS, batch=10)
