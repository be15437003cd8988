"""What is collected of an episode is what the agent saw, and what the model did."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.report.memory import FREE, UNKNOWN, WALL, remember
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.maze import make_mazes
from mgmem.tasks.motion import MOTIONS
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED


def world_and_path(task, episode):
    """The maze and the agent's cells, from their makers rather than from the task."""
    keys = SeedStream(TEST_SEED, "test").keys(episode, 1)
    walls = make_mazes(keys, task.world)
    path = MOTIONS[task.motion].path(keys, walls, task.episode_length)
    return walls[0], path[:, 0]


def seen_by_walking(task, walls, path, step):
    """Look around cell by cell; what lies outside the maze is wall, outside the map cut off."""
    explored = np.full((task.grid, task.grid), UNKNOWN)
    shift = task.grid // 2 - path[0]
    reach = task.fov // 2
    for agent in path[: step + 1]:
        for row in range(agent[0] - reach, agent[0] + reach + 1):
            for column in range(agent[1] - reach, agent[1] + reach + 1):
                inside = 0 <= row < task.world and 0 <= column < task.world
                wall = not inside or walls[row, column]
                place = (row + shift[0], column + shift[1])
                if min(place) >= 0 and max(place) < task.grid:
                    explored[place] = WALL if wall else FREE
    return explored


TASKS = [
    Mapping(world=9, grid=12),
    Mapping(world=9, grid=12, motion="random", path_length=30),
    Mapping(world=9, grid=12, location="raw"),
    Mapping(world=9, grid=7),
    Mapping(world=9, grid=12, fov=5, queries=(5,), location_scale=0.1),
]


class Silent(torch.nn.Module):
    """Answers 0 to everything and remembers nothing."""

    def __init__(self, grid):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.grid = grid

    def forward(self, inputs, state=None, *, queries, times, reset=None, lengths=None):
        shape = (len(times), inputs.shape[1], 1, self.grid, self.grid)
        return tuple(torch.zeros(shape) for _ in queries), None


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("episode", [0, 7])
def test_the_explored_map_is_what_the_agent_saw(task, episode):
    walls, path = world_and_path(task, episode)
    steps = [0, 1, 11, task.episode_length - 1]
    history = remember(Silent(task.grid), task, episode, steps)
    assert [moment.step for moment in history.moments] == steps
    for moment in history.moments:
        expected = seen_by_walking(task, walls, path, moment.step)
        np.testing.assert_array_equal(moment.explored, expected)
        shift = task.grid // 2 - path[0]
        np.testing.assert_array_equal(moment.path, path[: moment.step + 1] + shift)
        assert moment.hidden is None
        assert moment.cell is None
        np.testing.assert_array_equal(moment.answer, 0.5)


def test_targets_mark_where_the_query_lies_on_the_explored_map(history):
    for moment in history.moments:
        assert moment.target.any()
        for row, column in np.argwhere(moment.target):
            window = moment.explored[row - 1 : row + 2, column - 1 : column + 2]
            np.testing.assert_array_equal(window, moment.query)


def test_memory_and_answers_are_those_of_the_whole_episode_in_one_call(mapping9, history):
    task, model = mapping9
    steps = torch.tensor([moment.step for moment in history.moments])
    batch = task.episodes(SeedStream(TEST_SEED, "test"), 3, 1).batch(0, 49, steps)
    with torch.no_grad():
        (answers,), state = model(batch.inputs, queries=batch.queries, times=batch.times)
    for moment, answer, target in zip(
        history.moments, answers[:, 0, 0], batch.targets[0][:, 0, 0], strict=True
    ):
        np.testing.assert_allclose(moment.answer, answer.sigmoid(), atol=1e-5)
        np.testing.assert_array_equal(moment.target, target)
    last, deepest = history.moments[-1], state.layers[-1]
    np.testing.assert_allclose(last.hidden, deepest.h[2][0].mean(0), atol=1e-5)
    np.testing.assert_allclose(last.cell, deepest.c[2][0].mean(0), atol=1e-5)
    assert history.channels == deepest.c[2].shape[1]


def test_looking_leaves_the_model_in_its_mode(mapping9):
    task, model = mapping9
    assert model.training
    remember(model, task, 0, [0])
    assert model.training


def test_nothing_is_asked_before_a_window_was_seen():
    task = Mapping(world=9, grid=12, queries=(5,))
    history = remember(Silent(12), task, 0, [0, 48])
    assert history.moments[0].query is None
    assert history.moments[0].verdict()[:2] == (0, 0)
    assert history.moments[1].query.shape == (5, 5)


def test_a_verdict_counts_found_missed_and_wrong_places(history):
    moment = history.moments[0]
    found, missed, wrong = moment.verdict()
    assert found + missed == moment.target.sum()
    assert found + wrong == (moment.answer >= 0.5).sum()


def test_a_telling_moment_has_a_question_with_walls_and_free_cells(mapping9):
    task, model = mapping9
    history = remember(model, task, 0)
    moment = history.moments[history.telling()]
    assert {FREE, WALL} == set(np.unique(moment.query))
    assert 24 < moment.step < 42


@pytest.mark.parametrize("steps", [[], [49], [-1]])
def test_steps_outside_the_episode_are_refused(mapping9, steps):
    task, model = mapping9
    with pytest.raises(UsageError, match="steps 0 to 48"):
        remember(model, task, 0, steps)


def test_negative_episodes_are_refused(mapping9):
    with pytest.raises(UsageError, match="numbered from 0"):
        remember(mapping9[1], mapping9[0], -1)


def test_models_without_grids_are_remembered_without_them():
    experiment = find("mapping-15-lstm")
    task, model = experiment.build()
    history = remember(model, task, 0, [3])
    assert history.channels is None
    assert history.moments[0].hidden is None
