"""The mapping task, held against what can be remembered from its inputs alone."""

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks import Batch, Mapping, SeedStream, Task, make_mazes
from mgmem.tasks import mapping as mapping_module
from mgmem.tasks.motion import MOTIONS
from mgmem.tasks.seeds import draw
from mgmem.tasks.windows import Windows, first_observed
from mgmem.tasks.world import pad_with_walls

STREAM = SeedStream(11, "train")

VARIANTS = [
    Mapping(9, grid=12),
    Mapping(15),
    Mapping(11, motion="random", path_length=120),
    Mapping(25, motion="random", path_length=150, location="raw"),
    Mapping(15, queries=(9,)),
    Mapping(13, queries=(3, 9)),
    Mapping(17, fov=9, queries=(9,), motion="random", path_length=90),
    Mapping(9, fov=5, queries=(7, 5), motion="random", path_length=40, grid=9),
    Mapping(15, stretch=40, rare=0.7),
    Mapping(13, queries=(3, 9), motion="random", path_length=120, stretch=100, rare=1.0),
]


def name_of(task):
    stretch = f"-{task.stretch}-{task.rare}" if task.stretch else ""
    return f"{task.world}-{task.fov}-{task.queries}-{task.motion}{stretch}"


class Memory:
    """What one agent has seen, gathered from its inputs in plain Python."""

    def __init__(self, task):
        self.task = task
        self.cells = {}

    def see(self, patch):
        """patch: (4, m, m)."""
        place = patch[2:, 0, 0].double()
        if self.task.location == "raw":
            place = place - self.task.world
        else:
            place = place * self.task.grid / 2
        row, column = (round(value) for value in place.tolist())
        half = self.task.fov // 2
        for i in range(self.task.fov):
            for j in range(self.task.fov):
                cell = (row + i - half, column + j - half)
                wall = patch[1, i, j].item()
                assert self.cells.setdefault(cell, wall) == wall  # what was seen stays the same

    def complete_windows(self, size):
        """Position -> tuple of cells, for every position whose whole window was seen."""
        half = size // 2
        windows = {}
        for row, column in self.cells:
            around = [
                (row + i, column + j)
                for i in range(-half, half + 1)
                for j in range(-half, half + 1)
            ]
            if all(cell in self.cells for cell in around):
                windows[row, column] = tuple(self.cells[cell] for cell in around)
        return windows


@pytest.mark.parametrize("task", VARIANTS, ids=name_of)
def test_targets_mark_all_that_was_seen_and_looks_like_the_query(task: Task):
    episodes = task.episodes(STREAM, 40, 3)
    batch = episodes.batch(0, episodes.length)
    assert batch.weight is not None
    moments = sorted({0, 1, 2, 5, 8, 20, episodes.length // 2, episodes.length - 1})
    centre = task.grid // 2
    for agent in range(3):
        memory = Memory(task)
        for step in range(episodes.length):
            memory.see(batch.inputs[step, agent])
            if step not in moments:
                continue
            for reader, size in enumerate(task.queries):
                windows = memory.complete_windows(size)
                query = batch.queries[reader][step, agent]
                expected = torch.zeros(task.grid, task.grid)
                for (row, column), cells in windows.items():
                    if cells == tuple(query[1].flatten().tolist()):
                        expected[row + centre, column + centre] = 1
                assert torch.equal(batch.targets[reader][step, agent, 0], expected)
                assert batch.weight[reader, step, agent] == (1 if windows else 0)
                if windows:
                    assert expected.sum() >= 1
                    assert torch.equal(query[0], 1 - query[1])
                else:
                    assert not query.any()
                assert not query[2:].any()


@pytest.mark.parametrize("task", VARIANTS, ids=name_of)
def test_batches_have_the_shapes_the_task_states(task):
    batch = task.episodes(STREAM, 0, 4).batch(10, 30, torch.tensor([0, 3, 19]))
    assert batch.inputs.shape == (20, 4, *task.shapes.input)
    assert batch.times.tolist() == [0, 3, 19]
    for reader in range(len(task.queries)):
        assert batch.queries[reader].shape == (3, 4, *task.shapes.queries[reader])
        assert batch.targets[reader].shape == (3, 4, *task.shapes.answers[reader])
    assert batch.weight.shape == (len(task.queries), 3, 4)
    assert batch.episode.tolist() == [0, 1, 2, 3]
    floats = (batch.inputs, batch.weight, *batch.queries, *batch.targets)
    assert {tensor.dtype for tensor in floats} == {torch.float32}
    if task.location == "scaled":
        assert batch.inputs.abs().max() <= 1


def assert_same(one: Batch, other: Batch):
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.times, other.times)
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.episode, other.episode)
    for left, right in zip(one.queries + one.targets, other.queries + other.targets, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("task", VARIANTS, ids=name_of)
def test_cutting_an_episode_changes_nothing(task):
    episodes = task.episodes(STREAM, 5, 3)
    whole = episodes.batch(0, 40)
    first, second = episodes.batch(0, 23), episodes.batch(23, 40)
    assert_same(
        whole,
        Batch(
            inputs=torch.cat([first.inputs, second.inputs]),
            reset=None,
            times=torch.cat([first.times, second.times + 23]),
            queries=tuple(map(torch.cat, zip(first.queries, second.queries, strict=True))),
            targets=tuple(map(torch.cat, zip(first.targets, second.targets, strict=True))),
            weight=torch.cat([first.weight, second.weight], dim=1),
            episode=first.episode,
        ),
    )


@pytest.mark.parametrize("task", VARIANTS, ids=name_of)
def test_an_episode_does_not_depend_on_the_others_made_with_it(task):
    together = task.episodes(STREAM, 100, 6).batch(0, 30)
    alone = task.episodes(STREAM, 104, 1).batch(0, 30)
    assert torch.equal(together.inputs[:, 4:5], alone.inputs)
    for left, right in zip(together.queries, alone.queries, strict=True):
        assert torch.equal(left[:, 4:5], right)
    for left, right in zip(together.targets, alone.targets, strict=True):
        assert torch.equal(left[:, 4:5], right)
    assert alone.episode.tolist() == [104]


def test_queries_at_some_steps_are_those_asked_at_every_step():
    episodes = Mapping(15).episodes(STREAM, 0, 4)
    every, some = episodes.batch(20, 60), episodes.batch(20, 60, torch.tensor([3, 17, 39]))
    assert torch.equal(every.queries[0][[3, 17, 39]], some.queries[0])
    assert torch.equal(every.targets[0][[3, 17, 39]], some.targets[0])


def test_several_queries_at_one_step_are_different_draws():
    episodes = Mapping(15).episodes(STREAM, 0, 16)
    batch = episodes.batch(100, 120, torch.tensor([4, 9, 9, 9]))
    assert torch.equal(batch.queries[0][1], episodes.batch(100, 120).queries[0][9])
    assert not torch.equal(batch.queries[0][1], batch.queries[0][2])
    assert not torch.equal(batch.queries[0][2], batch.queries[0][3])


def test_a_piece_may_ask_nothing():
    batch = Mapping(9).episodes(STREAM, 0, 2).batch(0, 5, torch.tensor([], dtype=torch.int64))
    assert batch.queries[0].shape == (0, 2, 4, 3, 3)
    assert batch.counted() == 0


def test_queries_are_drawn_uniformly_among_complete_windows():
    task, keys = Mapping(9), STREAM.keys(0, 1)
    walls = pad_with_walls(make_mazes(keys, 9), 1)
    path = MOTIONS["spiral"].path(keys, make_mazes(keys, 9), task.episode_length) + 1
    cells = path[..., 0] * 11 + path[..., 1]
    windows = Windows(walls, first_observed(cells, 11, 3), 3, pad=1)
    moments = np.full(20_000, 24)
    chosen, known = windows.draw(draw(keys, "test", np.arange(20_000)[:, None]), moments)
    assert known.all()
    numbers, counts = np.unique(chosen, return_counts=True)
    # After 25 steps of the spiral it has stood on the central 5 x 5 of the 7 x 7 interior.
    assert numbers.tolist() == [7 * row + column for row in range(1, 6) for column in range(1, 6)]
    assert abs(counts - 800).max() < 5 * np.sqrt(800)


def test_rare_queries_ask_for_every_look_about_equally_often():
    """All 169 windows seen, 4,000 draws: each of n looks within five deviations of 4,000 / n."""
    episodes = Mapping(15, rare=1.0).episodes(STREAM, 7, 1)
    count = 4000
    patches = episodes.batch(0, 169, torch.full((count,), 168)).queries[0][:, 0, 1].flatten(1)
    looks, asked = patches.unique(dim=0, return_counts=True)
    seen = episodes.batch(0, 169).inputs[:, 0, 1].flatten(1).unique(dim=0)
    assert torch.equal(looks, seen)
    expected = count / len(seen)
    assert (asked - expected).abs().max() < 5 * expected**0.5


def test_a_stretch_is_a_piece_of_the_path_from_anywhere():
    whole = Mapping(15).episodes(STREAM, 0, 40).batch(0, 169).inputs
    pieces = Mapping(15, stretch=50).episodes(STREAM, 0, 40).batch(0, 50).inputs
    starts = set()
    for agent in range(40):
        found = [s for s in range(120) if torch.equal(whole[s : s + 50, agent], pieces[:, agent])]
        assert len(found) == 1
        starts.add(found[0])
    assert len(starts) > 20


def test_foreign_queries_may_be_for_what_was_not_seen_and_mark_only_what_was():
    """One step seen: half of the queries for that patch, half for any of the world's 169."""
    task = Mapping(15, stretch=1, foreign=0.5)
    batch = task.episodes(STREAM, 0, 400).batch(0, 1)
    asked, seen = batch.queries[0][0, :, :2], batch.inputs[0, :, :2]
    alike = (asked == seen).flatten(1).all(1)
    marks = batch.targets[0].sum((0, 2, 3, 4))
    assert torch.equal(marks, alike.float())
    assert 0.5 < alike.float().mean() < 0.8
    assert batch.counted() == 400


def test_inputs_show_the_maze_around_the_agent_and_walls_beyond_it():
    task = Mapping(9, fov=9, queries=(9,), motion="random", path_length=60)
    keys = STREAM.keys(3, 2)
    walls = make_mazes(keys, 9)
    path = MOTIONS["random"].path(keys, walls, 60)
    inputs = task.episodes(STREAM, 3, 2).batch(0, 60).inputs
    for step in range(60):
        for agent in range(2):
            row, column = path[step, agent]
            for i in range(9):
                for j in range(9):
                    r, c = row + i - 4, column + j - 4
                    wall = walls[agent, r, c] if 0 <= r < 9 and 0 <= c < 9 else True
                    assert inputs[step, agent, :2, i, j].tolist() == [1 - wall, wall]
            relative = torch.tensor([row - task.start, column - task.start]) / 12
            assert torch.allclose(inputs[step, agent, 2:, 0, 0], relative.float())


def test_locations_can_be_raw_integers_or_scaled_otherwise():
    raw = Mapping(15, location="raw").episodes(STREAM, 0, 1).batch(0, 169).inputs[:, 0, 2:, 1, 1]
    assert raw[0].tolist() == [15, 15]
    assert (raw.min(), raw.max()) == (9, 21)
    scaled = Mapping(15, location_scale=1 / 6).episodes(STREAM, 0, 1).batch(0, 169).inputs
    assert torch.allclose(scaled[:, 0, 2:, 1, 1], (raw - 15) / 6)


def test_no_test_episode_shares_a_maze_seed_with_training(monkeypatch):
    seeds = {"train": set(), "valid": set(), "test": set()}

    def recording(keys, size):
        seeds[split].update(keys.tolist())
        return make_mazes(keys, size)

    monkeypatch.setattr(mapping_module, "make_mazes", recording)
    for split in seeds:
        for root in range(3):
            Mapping(9).episodes(SeedStream(root, split), 0, 2000)
    assert {len(numbers) for numbers in seeds.values()} == {6000}
    assert not seeds["train"] & seeds["test"]
    assert not seeds["train"] & seeds["valid"]
    assert not seeds["valid"] & seeds["test"]


def test_paths_of_another_origin_can_be_followed():
    task = Mapping(15, motion="random", path_length=30)
    keys = STREAM.keys(0, 2)
    walls = make_mazes(keys, 15)
    still = np.full((30, 2, 2), 7)
    batch = task.follow(keys, walls, still, first=8).batch(0, 30)
    assert batch.targets[0].sum((2, 3, 4)).eq(1).all()
    assert batch.targets[0][:, :, 0, 12, 12].eq(1).all()
    assert batch.episode.tolist() == [8, 9]
    with pytest.raises(UsageError, match="paths start at \\[6, 6\\]"):
        task.follow(keys, walls, still - 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": 14}, "world is 14"),
        ({"world": 3}, "world is 3"),
        ({"fov": 4}, "field of view is 4"),
        ({"fov": 9, "queries": (3,)}, "query size is 3"),
        ({"queries": (4,)}, "query size is 4"),
        ({"queries": (17,)}, "query size is 17"),
        ({"queries": ()}, "query sizes"),
        ({"queries": (3, 3)}, "query sizes"),
        ({"motion": "teleport"}, "teleport"),
        ({"path_length": 170}, "from 1 to 169"),
        ({"path_length": 0}, "0 steps"),
        ({"world": 27}, "grid of at least 25"),
        ({"grid": 12}, "grid of at least 13"),
        ({"world": 25, "motion": "random", "grid": 23}, "grid of at least 24"),
        ({"location": "absolute"}, "absolute"),
        ({"location_scale": 0.2}, "0.166667"),
        ({"location": "raw", "location_scale": 0.1}, "raw"),
        ({"world": 15, "stretch": 170}, "170 steps of a path of 169"),
        ({"rare": 1.5}, "rare"),
        ({"foreign": -0.1}, "foreign"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Mapping(**options)


@pytest.mark.parametrize(
    ("task", "first", "last"),
    [
        (Mapping(25), 1, 23),
        (Mapping(15, grid=13), 0, 12),
        (Mapping(25, motion="random", path_length=20_000), 0, 22),
    ],
)
def test_worlds_that_just_fit_are_marked_from_their_first_to_their_last_position(task, first, last):
    episodes = task.episodes(STREAM, 0, 8)
    many = torch.zeros(400, dtype=torch.int64)
    batch = episodes.batch(episodes.length - 1, episodes.length, many)
    marked = batch.targets[0].amax((0, 1, 2)).nonzero()
    assert marked.amin(0).tolist() == [first, first]
    assert marked.amax(0).tolist() == [last, last]


def test_the_largest_query_is_asked_once_all_has_been_seen():
    batch = Mapping(9, queries=(9,)).episodes(STREAM, 0, 4).batch(0, 49)
    assert batch.weight is not None
    assert batch.weight[0].sum(1).tolist() == [0] * 48 + [4]


@pytest.mark.parametrize(
    ("piece", "times", "message"),
    [
        ((0, 50), None, "49 steps"),
        ((5, 5), None, "5 to 5"),
        ((-1, 5), None, "-1 to 5"),
        ((0, 20), [0, 20], "between 0 and 19"),
        ((0, 20), [-1], "between 0 and 19"),
        ((0, 20), [3, 2], "non-decreasing"),
        ((0, 20), [[3]], "one dimension"),
    ],
)
def test_impossible_pieces_are_refused(piece, times, message):
    episodes = Mapping(9).episodes(STREAM, 0, 1)
    with pytest.raises(UsageError, match=message):
        episodes.batch(*piece, None if times is None else torch.tensor(times))
