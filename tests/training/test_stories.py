"""Learning from finite stories: epochs, evenly by task, by length, the same again after a stop."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import assert_identical, final, train

from mgmem.errors import UsageError
from mgmem.tasks import AssociativeRecall, SeedStream
from mgmem.tasks.babi import Babi
from mgmem.tasks.story_scores import NUMBERED
from mgmem.training.feed import Growth, Share
from mgmem.training.stories import Stories

pytestmark = [
    pytest.mark.xdist_group("babi"),
    pytest.mark.skipif(
        not (Path(os.environ.get("MGMEM_DATA", "")) / "babi").is_dir(),
        reason="no bAbI: set MGMEM_DATA to a folder with babi/tasks_1-20_v1-2.tar.gz in it",
    ),
]
TRAIN = SeedStream(0, "train")


def feed(lesson=None, task=None, stream=TRAIN, batch=64, share=None):
    return (lesson or Stories()).feed(task or Babi(), stream, batch, share or Share())


def drawn(source, pools):
    """Questions of each task in so many pools."""
    counts, end = np.zeros(20), source.state_dict()["pool"] + pools
    while source.state_dict()["pool"] < end:
        counts += asked(source.next())
    return counts


def asked(batch):
    """Questions of each task in a batch, by the places where answers begin."""
    fresh = torch.cat(
        [torch.ones_like(batch.times[:1], dtype=torch.bool), batch.times.diff(dim=0) != 1]
    )
    per_story = (fresh & (batch.weight[0] > 0)).sum(0)
    return np.bincount((batch.episode // NUMBERED).numpy(), per_story.numpy(), minlength=21)[1:]


def test_every_task_gives_as_many_questions_as_any_other():
    counts = drawn(feed(), 4)
    assert (abs(np.delete(counts, 2) - 640) < 45).all()
    # Task 3 has few stories: none is read more than twice while others are read once.
    assert 200 < counts[2] < 300


def test_short_stories_give_as_many_questions_as_long_ones_and_what_is_known_gives_fewer():
    lesson = Stories(growth=Growth(60, goal=0.5, end=60), repeat=9, rehearsed=0.25)
    source, three = feed(lesson, Babi((1, 10, 13))), [0, 9, 12]
    source.hear(heard(0.6, 1, 10, 13))  # what is right in less than three of five counts in full
    drawn(source, 1)
    assert (abs(drawn(source, 4)[three] - 640) < 45).all()
    source.hear(heard(1.0, 10))
    drawn(source, 1)
    assert (abs(drawn(source, 4)[three] - [640, 160, 640]) < 45).all()


def test_renamed_stories_are_the_same_with_other_names_and_so_are_their_answers():
    plain, renamed = feed(), feed(Stories(renamed=True))
    changed = 0
    for _ in range(8):
        one, other = plain.next(), renamed.next()
        assert torch.equal(one.episode, other.episode)
        assert torch.equal(one.times, other.times)
        for story in range(len(one.episode)):
            asked = one.weight[0, :, story] > 0
            words, instead = (
                torch.cat([b.inputs[:, story, :, 0].argmax(1), b.targets[0][asked, story]])
                for b in (one, other)
            )
            pairs = set(zip(words.tolist(), instead.tolist(), strict=True))
            assert len(pairs) == len(words.unique()) == len(instead.unique()), "one for one"
            changed += any(a != b for a, b in pairs)
    assert changed > 100


def test_a_story_has_other_names_each_time_and_the_same_after_a_stop():
    lesson, task = Stories(renamed=True, words=400), Babi((20,))
    source = feed(lesson, task)
    seen = {}
    for _ in range(400):
        batch = source.next()
        for story, number in enumerate(batch.episode.tolist()):
            told = tuple(batch.inputs[:, story, :, 0].argmax(1)[: batch.lengths[story]].tolist())
            seen.setdefault(number, []).append(told)
    again = [stories for stories in seen.values() if len(stories) > 3]
    assert again
    assert all(len(set(stories)) > 1 for stories in again)
    state, following = source.state_dict(), source.next()
    resumed = feed(lesson, task)
    resumed.load_state_dict(state)
    assert torch.equal(resumed.next().inputs, following.inputs)


def test_an_epoch_reads_every_story_of_a_task_once():
    task = Babi((20,))
    own = np.flatnonzero(task.stories("train").task == 20)
    source, seen = feed(Stories(pool=100), task), []
    while sum(map(len, seen)) <= len(own):
        pool, drawn = source.state_dict()["pool"], []
        while source.state_dict()["pool"] == pool:
            drawn += (source.next().episode % NUMBERED).tolist()
        seen.append(drawn)
    first = [number for drawn in seen[:-1] for number in drawn]
    assert len(set(first)) == len(first)
    assert set(first) <= set(own.tolist())
    assert set(own.tolist()) - set(first) <= set(seen[-1])


def test_batches_hold_stories_of_one_length_and_about_as_many_words():
    source = feed()
    read = padded = 0
    for _ in range(60):
        batch = source.next()
        steps, stories = batch.inputs.shape[:2]
        assert 16 <= stories <= 64
        assert steps * stories <= 2_000 or stories < 48
        read, padded = read + int(batch.lengths.sum()), padded + steps * stories
    assert read / padded > 0.85


def test_the_same_position_gives_the_same_batch():
    first, second = feed(), feed()
    for _ in range(40):
        first.next()
    second.load_state_dict(first.state_dict())
    for _ in range(5):
        one, other = first.next(), second.next()
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets[0], other.targets[0])
        assert torch.equal(one.episode, other.episode)
    assert first.state_dict() == second.state_dict()


def test_seeds_shuffle_differently():
    one, other = feed(), feed(stream=SeedStream(1, "train"))
    assert one.next().episode.tolist() != other.next().episode.tolist()


def test_several_processes_share_what_one_would_read():
    whole = feed()
    parts = [feed(share=Share(rank, 2)) for rank in range(2)]
    for _ in range(6):
        alone = sorted(whole.next().episode.tolist())
        together = sorted(n for part in parts for n in part.next().episode.tolist())
        assert len(together) % 2 == 0
        assert abs(len(alone) - len(together)) <= 1 or alone[0] == together[0]


GROWING = Stories(growth=Growth(20, factor=5.0, goal=0.6), longest=100)


def heard(score, *tasks):
    """Marks of a batch with 400 questions of each of these tasks, answered so well."""
    marks = torch.zeros(20, 2)
    for task in tasks:
        marks[task - 1] = torch.tensor([400 * score, 400.0])
    return marks


def longest_of_a_pool(source, score, *tasks):
    """Words of the longest story of each task in the pool that comes next, all answered so well."""
    pool, longest = source.state_dict()["pool"], np.zeros(21, int)
    while source.state_dict()["pool"] == pool:
        batch = source.next()
        np.maximum.at(longest, batch.episode.numpy() // NUMBERED, batch.lengths.numpy())
        source.hear(heard(score, *tasks))
    return longest


def test_stories_grow_with_each_pool_whose_answers_are_right():
    source = feed(GROWING, Babi((1,)))
    for score in (0.5, 0.5, 1.0, 1.0):
        longest = longest_of_a_pool(source, score, 1)
        assert longest[1] <= 20  # a pool keeps its lengths
    assert longest_of_a_pool(source, 1.0)[1] > 80
    assert source.horizon.growing is None
    assert str(source.horizon) == ""


def test_tasks_join_in_order_each_when_the_one_before_has_grown():
    """Task 2 seldom asks within twenty words; task 16 has stories of 47 words only."""
    source = feed(replace(GROWING, order=(6, 1, 2, 16)), Babi((1, 2, 6, 16)))
    words = []
    for tasks in ((), (6,), (1,), (2,), (16,)):
        source.hear(heard(1.0, *tasks))
        words.append([source.horizon.limits[task - 1] for task in (6, 1, 2, 16)])
    assert words[0] == [20, 0, 0, 0]
    assert words[1] == [100, 20, 0, 0]
    assert words[2] == [100, 93, 41, 0]
    assert words[3] == words[4] == [100, 93, 100, 47]


def test_tasks_out_of_the_order_join_together_after_it():
    source = feed(replace(GROWING, order=(6,)), Babi((1, 2, 6, 16)))
    limits = [source.horizon.limits[task - 1] for task in (1, 2, 6, 16)]
    source.hear(heard(1.0, 6))
    after = [source.horizon.limits[task - 1] for task in (1, 2, 6, 16)]
    assert limits == [0, 0, 20, 0]
    assert after == [20, 41, 100, 47]


def test_a_task_that_does_not_grow_is_not_waited_for_without_end():
    source = feed(replace(GROWING, order=(1, 4)), Babi((1, 4)))
    for _ in range(49):
        source.hear(heard(0.3, 1))
    assert source.horizon.limits[3] == 0
    source.hear(heard(0.3, 1))
    assert source.horizon.limits[3] == 24


def test_what_grows_is_said():
    source = feed(replace(GROWING, order=(1, 4)), Babi((1, 4, 16)))
    assert str(source.horizon) == "0 of 3 tasks whole, words of others 1:20"


def test_marks_are_right_questions_and_questions_of_each_task():
    source = feed(task=Babi((8, 15)))
    batch = source.next()
    right = torch.nn.functional.one_hot(batch.targets[0], 159).float()
    marks = source.marks((right,), batch)
    assert marks[:, 1].tolist() == asked(batch).tolist()
    assert torch.equal(marks[:, 0], marks[:, 1])
    assert source.marks((-right,), batch)[:, 0].sum() == 0


def test_a_feed_that_goes_on_in_the_middle_of_growing_gives_the_same_batches():
    first, second = feed(GROWING), feed(GROWING)
    for _ in range(30):
        first.next()
        first.hear(heard(1.0, 1, 7))
    second.load_state_dict(first.state_dict())
    for _ in range(20):
        assert torch.equal(first.next().inputs, second.next().inputs)
        first.hear(heard(1.0, 2))
        second.hear(heard(1.0, 2))
    assert first.state_dict() == second.state_dict()


def test_no_test_story_is_trained_on():
    task = Babi((1, 2, 6))
    told = task.stories("test")
    tests = {told.of(i)[0].tobytes() for i in range(len(told))}
    train, source = task.stories("train"), feed(task=task)
    for _ in range(30):
        for number in (source.next().episode % NUMBERED).tolist():
            assert train.of(number)[0].tobytes() not in tests


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    """With the quickest reader: other tests stop and resume the memory itself."""
    base = ["babi-lstm", "--task", "tasks=20", "--threads", "1", "--quiet"]
    for setting in ("read.updates 3", "finish.updates 2"):
        name, value = setting.split()
        base += [f"--{name}", value]
    for stage in ("read", "finish"):
        base += [f"--{stage}.validation.episodes", "4", f"--{stage}.validation.every", "2"]
        base += [f"--{stage}.lesson.words", "100", f"--{stage}.lesson.pool", "40"]
    for folder, stops in (("whole", ()), ("stopped", ("2", "4"))):
        for stop in stops:
            done = train(tmp_path / folder, "--max-updates", stop, base=base)
            assert done.returncode == 0, done.stderr
        done = train(tmp_path / folder, base=base)
        assert done.returncode == 0, done.stderr
    assert_identical(final(tmp_path / "whole"), final(tmp_path / "stopped"))


def test_what_can_not_be_is_refused():
    with pytest.raises(UsageError, match="tells no stories"):
        feed(task=AssociativeRecall(10))
    with pytest.raises(UsageError, match="batches of 16 to 8 stories"):
        feed(batch=8)
    with pytest.raises(UsageError, match="name any of 1 to 20, each once"):
        Stories(order=(1, 2, 1))
    with pytest.raises(UsageError, match="name any of 1 to 20, each once"):
        Stories(order=(21,))
    with pytest.raises(UsageError, match="words is 0"):
        Stories(words=0)
