"""Priority sort and associative recall with random bits."""

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks import AssociativeRecall, PrioritySort, SeedStream, Task

STREAM = SeedStream(2, "train")
TASKS = [PrioritySort(20), PrioritySort(50), AssociativeRecall(10), AssociativeRecall(20)]


def name_of(task):
    return f"{task.name}-{task.length}"


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_sort_wants_the_items_in_increasing_order_of_priority(spread):
    episodes = PrioritySort(50, spread).episodes(STREAM, 0, 64)
    batch = episodes.batch(0, 50)
    for sequence in range(64):
        items = [
            (batch.inputs[step, sequence, 1, 0, 0].item(), batch.inputs[step, sequence, 0])
            for step in range(50)
        ]
        assert len({priority for priority, _ in items}) == 50
        ordered = sorted(items, key=lambda item: item[0])
        for place, (_, bits) in enumerate(ordered):
            assert torch.equal(batch.targets[0][place, sequence, 0], bits)
    priority = batch.inputs[:, :, 1]
    assert (priority == priority[:, :, :1, :1]).all()
    assert priority.abs().max() < spread
    assert abs(priority.mean() / spread) < 0.05
    assert abs(priority.std() / spread - 3**-0.5) < 0.02
    bits = batch.inputs[:, :, 0]
    assert set(bits.unique().tolist()) == {0, 1}
    assert abs(bits.mean() - 0.5) < 0.02
    assert not batch.queries[0].any()
    assert batch.times.tolist() == [49] * 50


def test_even_priorities_are_equally_far_apart_in_random_order():
    task = PrioritySort(20, 4.0, "even")
    priority = task.episodes(STREAM, 0, 8).batch(0, 20).inputs[:, :, 1, 0, 0]
    levels = torch.linspace(-3.8, 3.8, 20)[:, None].expand(20, 8)
    torch.testing.assert_close(priority.sort(0).values, levels)
    assert len({tuple(order) for order in priority.argsort(0).T.tolist()}) == 8
    with pytest.raises(UsageError, match="choose uniform or even"):
        PrioritySort(20, priorities="odd")


def test_recall_wants_the_successor_of_the_named_item():
    batch = AssociativeRecall(10).episodes(STREAM, 0, 500).batch(0, 10)
    named = []
    for sequence in range(500):
        items = [tuple(batch.inputs[step, sequence].flatten().tolist()) for step in range(10)]
        assert len(set(items)) == 10
        place = items.index(tuple(batch.queries[0][0, sequence].flatten().tolist()))
        named.append(place)
        assert items[place + 1] == tuple(batch.targets[0][0, sequence].flatten().tolist())
    counts = [named.count(place) for place in range(9)]
    assert sum(counts) == 500
    assert min(counts) > 25  # each of the first nine is named about 56 times
    assert set(batch.inputs.unique().tolist()) == {0, 1}
    assert batch.times.tolist() == [9]


def test_recall_can_be_practised_on_every_question_about_a_shorter_list():
    task = AssociativeRecall(10).practice(length=6, questions=99)
    batch = task.episodes(STREAM, 0, 40).batch(0, 6)
    for sequence in range(40):
        items = [tuple(item.flatten().tolist()) for item in batch.inputs[:, sequence]]
        asked = [tuple(query.flatten().tolist()) for query in batch.queries[0][:, sequence]]
        assert sorted(asked) == sorted(items[:-1])
        for query, target in zip(asked, batch.targets[0][:, sequence], strict=True):
            assert items[items.index(query) + 1] == tuple(target.flatten().tolist())
    assert batch.times.tolist() == [5] * 5


def test_sort_is_practised_on_shorter_lists_and_asks_for_all_of_them():
    task = PrioritySort(20).practice(length=4, questions=1)
    assert len(task.episodes(STREAM, 0, 2).batch(0, 4).queries[0]) == 4


@pytest.mark.parametrize("spread", [0.0, -1.0, float("nan")])
def test_priorities_that_are_all_alike_are_refused(spread):
    with pytest.raises(UsageError, match="spread of priorities"):
        PrioritySort(20, spread)


@pytest.mark.parametrize("questions", [0, 10])
def test_impossible_numbers_of_questions_are_refused(questions):
    with pytest.raises(UsageError, match="give 1 to 9"):
        AssociativeRecall(10, questions)


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_batches_have_the_shapes_the_task_states(task: Task):
    batch = task.episodes(STREAM, 7, 3).batch(0, task.episode_length)
    assert batch.inputs.shape == (task.episode_length, 3, *task.shapes.input)
    asked = len(batch.times)
    assert asked == (task.episode_length if task.name == "sort" else 1)
    assert batch.queries[0].shape == (asked, 3, *task.shapes.queries[0])
    assert batch.targets[0].shape == (asked, 3, *task.shapes.answers[0])
    assert batch.counted() == asked * 3
    assert batch.episode is not None
    assert batch.episode.tolist() == [7, 8, 9]


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_an_episode_does_not_depend_on_the_others_made_with_it(task):
    together = task.episodes(STREAM, 20, 9).batch(0, task.length)
    alone = task.episodes(STREAM, 25, 1).batch(0, task.length)
    assert torch.equal(together.inputs[:, 5:6], alone.inputs)
    assert torch.equal(together.queries[0][:, 5:6], alone.queries[0])
    assert torch.equal(together.targets[0][:, 5:6], alone.targets[0])
    other = task.episodes(SeedStream(2, "test"), 25, 1).batch(0, task.length)
    assert not torch.equal(other.inputs, alone.inputs)


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_a_cut_sequence_asks_its_questions_at_its_end(task):
    episodes = task.episodes(STREAM, 0, 2)
    whole = episodes.batch(0, task.length)
    first, second = episodes.batch(0, 7), episodes.batch(7, task.length)
    assert torch.equal(torch.cat([first.inputs, second.inputs]), whole.inputs)
    assert len(first.times) == len(first.queries[0]) == len(first.targets[0]) == 0
    assert torch.equal(second.times, whole.times - 7)
    assert torch.equal(second.queries[0], whole.queries[0])
    assert torch.equal(second.targets[0], whole.targets[0])


def test_query_times_can_only_be_what_they_are():
    episodes = AssociativeRecall(10).episodes(STREAM, 0, 2)
    assert episodes.batch(0, 10, torch.tensor([9])).times.tolist() == [9]
    with pytest.raises(UsageError, match="leave the times out"):
        episodes.batch(0, 10, torch.tensor([4]))


@pytest.mark.parametrize("length", [1, 513])
def test_impossible_recall_lengths_are_refused(length):
    with pytest.raises(UsageError, match=str(length)):
        AssociativeRecall(length)


def test_impossible_sort_lengths_are_refused():
    with pytest.raises(UsageError, match="length is 1"):
        PrioritySort(1)
