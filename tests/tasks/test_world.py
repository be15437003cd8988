"""Walls, movement and sight: the world that mapping and exploration share."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmem.tasks import Mapping, SeedStream, make_mazes
from mgmem.tasks.world import MOVES, World, as_channels, free_start

KEYS = SeedStream(3, "train").keys(0, 12)


@given(size=st.sampled_from([5, 9, 15]), pad=st.integers(0, 3), seed=st.integers(0, 99))
def test_a_move_leads_one_cell_on_unless_there_is_a_wall(size, pad, seed):
    walls = make_mazes(KEYS, size)
    world, random = World(walls, pad), np.random.default_rng(seed)
    place = np.full((len(walls), 2), free_start(size))
    cells = world.cells(place[:, 0], place[:, 1])
    for _ in range(20):
        actions = random.integers(0, 4, len(walls))
        wanted = place + np.array(MOVES)[actions]
        hit = walls[np.arange(len(walls)), wanted[:, 0], wanted[:, 1]]
        place = np.where(hit[:, None], place, wanted)
        cells, bumped = world.move(cells, actions)
        assert (bumped == hit).all()
        assert (world.places(cells) == place).all()


@pytest.mark.parametrize("size", [3, 5])
def test_the_view_is_what_lies_around_and_beyond_the_world_is_wall(size):
    walls = make_mazes(KEYS, 9)
    world = World(walls, pad=size // 2)
    padded = np.pad(walls, ((0, 0), *[(size // 2,) * 2] * 2), constant_values=True)
    for row, column in [(1, 1), (3, 7), (7, 7)]:
        seen = world.view(world.cells(row, column), size)
        assert (seen == padded[:, row : row + size, column : column + size]).all()


def test_what_is_reachable_is_closed_under_moves_and_holds_no_wall():
    world = World(make_mazes(KEYS, 15))
    cells = world.cells(free_start(15), free_start(15))
    reached = world.reachable(cells).reshape(-1)
    assert reached[cells].all()
    assert not reached[world.walls.reshape(-1)].any()
    inside = np.flatnonzero(reached)
    for row, column in MOVES:
        neighbour = inside + row * world.side + column
        assert (reached[neighbour] | world.walls.reshape(-1)[neighbour]).all()


def test_mazes_can_be_exchanged_one_by_one():
    first, second = make_mazes(KEYS, 9), make_mazes(KEYS[::-1], 9)
    world = World(first, pad=1)
    world.replace(np.array([2, 5]), second[[2, 5]])
    expected = first.copy()
    expected[[2, 5]] = second[[2, 5]]
    assert (world.walls == World(expected, pad=1).walls).all()


def test_channels_say_free_and_wall_and_leave_two_empty():
    seen = make_mazes(KEYS, 5)
    channels = as_channels(seen)
    assert (channels[:, 1] == seen).all()
    assert (channels[:, 0] + channels[:, 1] == 1).all()
    assert not channels[:, 2:].any()


@pytest.mark.parametrize(
    ("task", "digest"),
    [
        (Mapping(), "3af773ae0e9bf472"),
        (Mapping(motion="random", path_length=60), "06f9b644db177d73"),
        (Mapping(world=25, grid=48, queries=(3, 9)), "01f79e94439e3703"),
        (Mapping(location="raw"), "71f7372a851fe1d7"),
    ],
)
def test_the_episodes_behind_the_shipped_results_stay_what_they_were(task, digest):
    episodes = task.episodes(SeedStream(4, "train"), 3, 5)
    batch = episodes.batch(2, min(episodes.length, 40))
    content = hashlib.sha256()
    tensors = (batch.inputs, batch.times, *batch.queries, *batch.targets, batch.weight)
    for tensor in (*tensors, batch.episode):
        content.update(tensor.numpy().tobytes())
    assert content.hexdigest()[:16] == digest
