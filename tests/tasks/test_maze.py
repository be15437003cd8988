"""Mazes and the ways of walking through them."""

from itertools import pairwise

import numpy as np
import pytest

from mgmem.errors import UsageError
from mgmem.tasks import SeedStream, make_mazes
from mgmem.tasks.motion import CuriousWalk, RandomWalk, Scattered, Spiral
from mgmem.tasks.seeds import below, draw

KEYS = SeedStream(5, "train").keys(0, 400)


def slow_maze(size, pick_seed, pick_neighbour):
    """The definition, one cell at a time."""
    walls = np.zeros((size, size), bool)
    walls[0] = walls[-1] = walls[:, 0] = walls[:, -1] = True
    for seed in range(int(0.2 * (size // 2) ** 2)):
        row, column = pick_seed(seed)
        walls[row, column] = True
        for attempt in range(int(0.05 * 10 * size)):
            around = []
            if row >= 2:
                around.append((row - 2, column))
            if row < size - 2:
                around.append((row + 2, column))
            if column >= 2:
                around.append((row, column - 2))
            if column < size - 2:
                around.append((row, column + 2))
            new_row, new_column = around[pick_neighbour(seed, attempt, len(around))]
            if not walls[new_row, new_column]:
                walls[new_row, new_column] = True
                walls[(row + new_row) // 2, (column + new_column) // 2] = True
                row, column = new_row, new_column
    return walls


@pytest.mark.parametrize("size", [5, 9, 15, 25])
def test_mazes_grow_as_defined(size):
    keys = KEYS[:20]
    mazes = make_mazes(keys, size)
    seeds, tries = int(0.2 * (size // 2) ** 2), int(0.05 * 10 * size)
    for index in range(len(keys)):
        key = keys[index : index + 1]
        spots = 2 * below(draw(key, "maze seeds", np.arange(2 * seeds)), size // 2 + 1)
        steps = below(draw(key, "maze growth", np.arange(seeds * tries)), 12)
        expected = slow_maze(
            size,
            lambda seed, spots=spots: (spots[seed], spots[seeds + seed]),
            lambda seed, attempt, n, steps=steps: steps[seed * tries + attempt] % n,
        )
        assert (mazes[index] == expected).all()


def test_mazes_are_distributed_as_with_an_ordinary_random_generator():
    random = np.random.default_rng(0)
    slow = np.stack(
        [
            slow_maze(
                15,
                lambda seed: 2 * random.integers(0, 8, 2),
                lambda seed, attempt, n: random.integers(n),
            )
            for _ in range(400)
        ]
    )
    fast = make_mazes(KEYS, 15)
    for rows, columns in [(slice(2, -2, 2), slice(2, -2, 2)), (slice(2, -2, 2), slice(1, -1, 2))]:
        one, other = (m[:, rows, columns].mean((1, 2)) for m in (slow, fast))
        error = np.sqrt((one.var() + other.var()) / 400)
        assert abs(one.mean() - other.mean()) < 4 * error


def test_a_maze_does_not_depend_on_the_others_made_with_it():
    mazes = make_mazes(KEYS[:10], 15)
    for index in range(10):
        assert (make_mazes(KEYS[index : index + 1], 15)[0] == mazes[index]).all()


def test_mazes_differ():
    assert len({maze.tobytes() for maze in make_mazes(KEYS, 15)}) == len(KEYS)


@pytest.mark.parametrize("size", [3, 14])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(UsageError, match=str(size)):
        make_mazes(KEYS, size)


@pytest.mark.parametrize("size", [5, 9, 15, 25])
def test_the_spiral_covers_growing_squares_one_step_at_a_time(size):
    walls = make_mazes(KEYS[:2], size)
    path = Spiral().path(KEYS[:2], walls, (size - 2) ** 2)
    assert (path[:, 0] == path[:, 1]).all()
    assert (abs(np.diff(path, axis=0)).sum(2) == 1).all()
    for side in range(1, size - 1, 2):
        cells = {tuple(cell) for cell in (path[: side**2, 0] - size // 2).tolist()}
        reach = range(-(side // 2), side // 2 + 1)
        assert cells == {(row, column) for row in reach for column in reach}


def test_a_random_walk_steps_to_a_free_neighbour_or_stays_before_a_wall():
    walls = make_mazes(KEYS, 15)
    path = RandomWalk().path(KEYS, walls, 200)
    maze = np.arange(len(KEYS))
    assert not walls[maze, path[..., 0], path[..., 1]].any()
    moves = np.diff(path, axis=0)
    assert (abs(moves).sum(2) <= 1).all()
    blocked = np.zeros(moves.shape[:2], int)
    for row, column in [(-1, 0), (1, 0), (0, -1), (0, 1)]:
        blocked += walls[maze, path[:-1, :, 0] + row, path[:-1, :, 1] + column]
    stays = (moves == 0).all(2)
    assert not (stays & (blocked == 0)).any()
    for walls_around in (1, 2, 3):  # each wall stops one of four equally likely moves
        here = blocked == walls_around
        error = np.sqrt(3 / 16 / here.sum())
        assert abs(stays[here].mean() - walls_around / 4) < 4 * error
    open_moves = moves[blocked == 0]
    for move in [(-1, 0), (1, 0), (0, -1), (0, 1)]:
        share = (open_moves == move).all(1).mean()
        assert abs(share - 0.25) < 4 * np.sqrt(3 / 16 / len(open_moves))


@pytest.mark.parametrize("size", [5, 7, 9, 15, 25])
def test_a_random_walk_starts_on_a_free_cell_at_the_centre(size):
    start = RandomWalk().start(size)
    assert start - size // 2 in (0, 1)
    assert not make_mazes(KEYS, size)[:, start, start].any()


def test_a_curious_walk_goes_to_a_free_neighbour_visited_least_often():
    walls = make_mazes(KEYS, 9)
    path = CuriousWalk().path(KEYS, walls, 80)
    for maze, cells in enumerate(path.transpose(1, 0, 2).tolist()):
        visits = dict.fromkeys(zip(*np.nonzero(~walls[maze]), strict=True), 0)
        for (row, column), after in pairwise(cells):
            visits[row, column] += 1
            near = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
            free = {cell: visits[cell] for cell in near if cell in visits}
            assert free[tuple(after)] == min(free.values())


def test_scattered_steps_begin_at_the_centre_and_go_once_to_every_cell_in_random_order():
    path = Scattered().path(KEYS, make_mazes(KEYS, 9), 49)
    assert (path[0] == 4).all()
    cells = [(row, column) for row in range(1, 8) for column in range(1, 8)]
    for agent in range(3):
        assert sorted(map(tuple, path[:, agent])) == cells
    assert not np.array_equal(path[:, 0], path[:, 1])
    distances = np.abs(np.diff(path, axis=0)).max(axis=2)
    assert distances.mean() > 2  # on a walk it would be 1


def test_an_agent_that_is_walled_in_stays():
    walls = np.ones((1, 5, 5), np.bool_)
    walls[0, 3, 3] = False
    assert (CuriousWalk().path(KEYS[:1], walls, 4) == 3).all()


@pytest.mark.parametrize("motion", [RandomWalk(), CuriousWalk(), Scattered()])
def test_a_walk_does_not_depend_on_the_others_made_with_it(motion):
    walls = make_mazes(KEYS, 15)
    path = motion.path(KEYS, walls, 60)
    assert (motion.path(KEYS[3:5], walls[3:5], 60) == path[:, 3:5]).all()
    assert (motion.path(KEYS, walls, 31) == path[:31]).all()
