"""Walkers by rule, and what is measured of walks."""

from itertools import pairwise

import numpy as np
import pytest

from mgmem.errors import UsageError
from mgmem.experiments.explore import RULES, make_agent, make_policy, make_rule, scores, walk
from mgmem.rl.coverage import Log, mean_estimate, take_walks
from mgmem.rl.explored import FREE, WALL, ExploredMap
from mgmem.rl.localization import localize
from mgmem.rl.walkers import CarefulWalker, CuriousWalker, FrontierWalker, RandomWalker
from mgmem.tasks import SeedStream, make_mazes
from mgmem.tasks.motion import RandomWalk
from mgmem.tasks.world import MOVES
from mgmem.training.evaluation import TEST_SEED, evaluate


def walks(walker, count=20, steps=150, world=9):
    return take_walks(walker, world=world, steps=steps, count=count, seed=3, batch=8)


def test_the_frontier_search_visits_every_reachable_cell_and_never_bumps():
    log = walks(FrontierWalker(grid=12))
    assert (log.coverage[:, -1] == 1).all()
    assert not log.bumped.any()


def test_on_a_map_that_a_world_fills_nothing_is_seen_beyond_the_opposite_rim():
    known = ExploredMap(1, 24)
    view = np.ones((1, 3, 3), np.int8)
    view[0, 1, 1] = 0
    known.update({"view": view, "place": np.array([[-12, -12]], np.int32)}, np.array([True]))
    assert np.argwhere(known.planes[0, WALL]).tolist() == [[0, 1], [1, 0], [1, 1]]
    assert np.argwhere(known.planes[0, FREE]).tolist() == [[0, 0]]
    log = walks(FrontierWalker(grid=24), count=4, steps=600, world=25)
    assert (log.coverage[:, -1] == 1).all()


def test_no_walker_covers_a_maze_faster_than_one_cell_a_step():
    for walker in (FrontierWalker(grid=12), RandomWalker(), CarefulWalker()):
        log = walks(walker)
        cells = 1 / log.coverage[:, 0]
        assert (np.diff(log.coverage * cells[:, None]) <= 1 + 1e-9).all()


def test_the_careful_walker_never_bumps_and_the_random_one_does():
    careful, random = walks(CarefulWalker()), walks(RandomWalker())
    assert not careful.bumped.any()
    assert random.bumped.mean() > 0.1
    assert (random.reward[random.bumped] == -1).all()
    assert careful.coverage[:, -1].mean() > random.coverage[:, -1].mean()


def test_the_curious_walker_goes_to_a_free_neighbour_where_it_was_least_often():
    log = walks(CuriousWalker(grid=12), count=6, steps=60)
    assert not log.bumped.any()
    for walls, path in zip(log.walls, log.path.transpose(1, 0, 2), strict=True):
        visits = np.where(walls, 1000, 0)
        for (row, column), after in pairwise(path.tolist()):
            visits[row, column] += 1
            near = [visits[row + r, column + c] for r, c in MOVES]
            assert visits[tuple(after)] == min(near)


def test_all_walkers_walk_the_same_mazes_and_paths_stay_off_walls():
    one, other = walks(RandomWalker(1)), walks(RandomWalker(2))
    assert (one.walls == other.walls).all()
    assert (one.keys == other.keys).all()
    rows, columns = one.path[..., 0], one.path[..., 1]
    assert not one.walls[np.arange(20), rows, columns].any()
    assert (one.path[0] == RandomWalk().start(9)).all()


def test_the_same_walker_walks_the_same_way_again():
    one, other = walks(RandomWalker(5)), walks(RandomWalker(5))
    assert (one.path == other.path).all()


def test_the_measures_mean_what_they_say():
    coverage = np.array([[0.1, 0.5, 0.95, 1.0], [0.1, 0.2, 0.3, 0.4]])
    reward = np.array([[1.0, 1, 1], [1, -1, 0]])
    log = Log(coverage, reward, reward < 0, *([np.zeros(2)] * 3))
    found = log.summary()
    assert found["coverage"].value == pytest.approx(0.7)
    assert found["area"].value == pytest.approx((0.5 + 0.95 + 1.0 + 0.2 + 0.3 + 0.4) / 6)
    assert found["steps_to_90"].value == pytest.approx((2 + 3) / 2)
    assert found["reached_90"].value == 0.5
    assert found["bumps"].value == pytest.approx(100 / 6)
    assert found["reward"].value == pytest.approx(1.5)


def test_an_interval_holds_the_true_mean_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    estimates = [mean_estimate(random.normal(3.0, 2.0, 50)) for _ in range(400)]
    assert 0.91 < np.mean([e.low <= 3.0 <= e.high for e in estimates]) < 0.98


def test_localization_on_a_log_is_the_mapping_task_on_the_same_walks(small, mapper):
    task, stream = mapper.task, SeedStream(TEST_SEED, "valid")
    keys = stream.keys(0, 12)
    walls = make_mazes(keys, task.world)
    path = RandomWalk().path(keys, walls, task.episode_length)
    nothing = np.zeros((12, 1))
    log = Log(nothing, nothing, nothing, path, keys, walls)
    score, _ = localize(mapper.model, task, log, batch=5, chunk=7)
    assert score.result() == evaluate(mapper.model, task, stream, 12).result()


def test_an_agent_on_a_memory_is_asked_where_it_saw_what_on_its_own_walks(small, mapper):
    policy = make_policy(small, "memory", mapper, 0)
    log = walk(small, make_agent(small, "memory", mapper, policy, 0), 8)
    found = scores(log, mapper, localization=True)
    assert found["localization_loss"].value > 0
    assert 0 < found["f"].value < 1


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_can_be_walked_by(rule, small, mapper):
    log = walk(small, make_rule(rule, mapper), 4)
    assert log.coverage.shape == (4, small.steps + 1)


def test_no_walks_are_refused():
    with pytest.raises(UsageError, match="at least 1"):
        walks(RandomWalker(), count=0)
