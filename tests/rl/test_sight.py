"""What policies look at, from where the agent stands."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgmem.errors import UsageError
from mgmem.experiments.explore import SYSTEMS, make_sight
from mgmem.rl import MazeVectorEnv
from mgmem.rl.sight import MapSight, MemorySight, around


@given(grid=st.sampled_from([6, 12, 24]), window=st.sampled_from([3, 6, 12]), seed=st.integers(0))
def test_the_window_is_cut_from_every_resolution_alike_and_is_empty_beyond_the_map(
    grid, window, seed
):
    random = np.random.default_rng(seed)
    sides = [grid, grid // 2, grid // 6]
    grids = [torch.from_numpy(random.normal(size=(3, 2, s, s))).float() for s in sides]
    places = random.integers(-grid // 2, grid // 2, (3, 2))
    seen = around(grids, places, grid, window)
    assert seen.shape == (3, 6, window, window)
    for walk, (row, column) in enumerate(places):
        for i in range(window):
            for j in range(window):
                r, c = row + grid // 2 + i - window // 2, column + grid // 2 + j - window // 2
                inside = 0 <= r < grid and 0 <= c < grid
                for part, values in enumerate(grids):
                    step = grid // values.shape[-1]
                    expected = values[walk, :, r // step, c // step] if inside else torch.zeros(2)
                    found = seen[walk, 2 * part : 2 * part + 2, i, j]
                    assert torch.equal(found, expected.half())


def walks(mapper, steps=12, length=5):
    """Inputs (T, B, 4, 3, 3), observations and starts of random walks that begin anew."""
    env, random = MazeVectorEnv(3, world=9, steps=length), np.random.default_rng(0)
    observation, _ = env.reset(seed=1, options={"elapsed": np.array([0, 2, 4])})
    for _ in range(steps):
        told = mapper.task.observation(observation["view"] > 0, observation["place"])
        yield observation, torch.from_numpy(told), env.fresh.copy()
        observation, *_ = env.step(random.integers(0, 4, 3))


def test_step_by_step_the_memory_holds_what_a_whole_sequence_with_resets_would(mapper):
    memory, moments = mapper.model.memory, list(walks(mapper))
    inputs = torch.stack([told for _, told, _ in moments])
    fresh = torch.from_numpy(np.stack([started for *_, started in moments]))
    with torch.no_grad():
        h, _ = memory(inputs, reset=fresh)
    sight = MemorySight(memory, grid=12, window=6)
    for t, (observation, told, started) in enumerate(moments):
        seen = sight.look(observation, told, started)
        expected = around([g[t] for g in h[-1]], observation["place"], 12, 6)
        torch.testing.assert_close(seen, expected, atol=2e-3, rtol=0)


def test_the_memory_is_frozen(mapper):
    sight = MemorySight(mapper.model.memory, grid=12, window=6)
    before = {n: t.clone() for n, t in sight.memory.state_dict().items()}
    for moment in walks(mapper):
        assert not sight.look(*moment).requires_grad
    assert not sight.memory.training
    assert not any(parameter.requires_grad for parameter in sight.memory.parameters())
    assert all(torch.equal(before[n], t) for n, t in sight.memory.state_dict().items())


def test_the_map_holds_exactly_what_was_seen_and_where_one_was(mapper):
    sight = MapSight(grid=12, window=12)
    known = [{} for _ in range(3)]
    been = [set() for _ in range(3)]
    for observation, told, fresh in walks(mapper):
        seen = sight.look(observation, told, fresh)
        for walk in range(3):
            if fresh[walk]:
                known[walk], been[walk] = {}, set()
            row, column = observation["place"][walk]
            been[walk].add((row, column))
            for i in range(3):
                for j in range(3):
                    cell = row + i - 1, column + j - 1
                    known[walk][cell] = bool(observation["view"][walk, i, j])
            expected = torch.zeros(3, 12, 12)
            for (r, c), wall in known[walk].items():
                i, j = r - row + 6, c - column + 6
                if 0 <= i < 12 and 0 <= j < 12:
                    expected[2 if wall else 1, i, j] = 1
                    expected[0, i, j] = (r, c) in been[walk]
            assert torch.equal(seen[walk].float(), expected)


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_a_restored_sight_goes_on_as_it_would_have(system, small, mapper):
    moments = list(walks(mapper))
    sight, other = (make_sight(small, system, mapper) for _ in range(2))
    for moment in moments[:6]:
        sight.look(*moment)
    other.restore({name: tensor.clone() for name, tensor in sight.tensors().items()})
    for moment in moments[6:]:
        assert torch.equal(sight.look(*moment), other.look(*moment))


def test_a_memory_whose_finest_grid_is_not_the_map_is_refused(mapper):
    with pytest.raises(UsageError, match="finest grid is 12"):
        MemorySight(mapper.model.memory, grid=24, window=6)
