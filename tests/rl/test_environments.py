"""The maze as a gymnasium environment, one at a time and many at once."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from mgmem.errors import UsageError
from mgmem.rl import MazeEnv, MazeVectorEnv
from mgmem.tasks.world import MOVES


def walk(env, seed, actions):
    """Everything that an environment says along some actions."""
    said = [env.reset(seed=seed)]
    for action in actions:
        said.append(env.step(action))
    return said


@pytest.mark.parametrize("options", [{}, {"world": 5, "steps": 3}, {"world": 9, "fov": 5}])
def test_gymnasium_finds_nothing_wrong(options):
    check_env(gymnasium.make("mgmem/Maze-v0", **options).unwrapped)


@given(
    world=st.sampled_from([5, 9, 15]),
    steps=st.integers(1, 12),
    fov=st.sampled_from([3, 5]),
    seed=st.integers(0, 2**40),
)
def test_the_vector_environment_is_many_single_ones_to_the_last_bit(world, steps, fov, seed):
    options = {"world": world, "steps": steps, "fov": fov}
    ours = gymnasium.make_vec("mgmem/Maze-v0", num_envs=5, **options)
    theirs = SyncVectorEnv([lambda: MazeEnv(**options)] * 5)
    assert isinstance(ours.unwrapped, MazeVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    actions = np.random.default_rng(seed).integers(0, 4, (30, 5))
    pairs = zip(walk(ours, seed, actions), walk(theirs, seed, actions), strict=True)
    for one, other in pairs:
        assert data_equivalence(one[0], other[0], exact=True)
        assert ours.observation_space.contains(one[0])
        for mine, its in zip(one[1:], other[1:], strict=True):
            if isinstance(mine, dict):
                for key in mine:
                    np.testing.assert_array_equal(mine[key], its[key])
            else:
                assert (mine == its).all()
                assert mine.dtype == its.dtype


def test_rewards_are_for_new_cells_and_against_walls_and_coverage_counts_cells():
    env = MazeEnv(world=9, steps=200)
    (observed, info), env_random = env.reset(seed=4), np.random.default_rng(0)
    place, visited = np.zeros(2, int), {(0, 0)}
    reachable = round(1 / info["coverage"])
    for _ in range(200):
        action = int(env_random.integers(4))
        wanted = place + MOVES[action]
        wall = bool(observed["view"][1 + MOVES[action][0], 1 + MOVES[action][1]])
        place = place if wall else wanted
        expected = -1 if wall else float(tuple(place) not in visited)
        visited.add(tuple(place))
        observed, reward, terminated, _, info = env.step(action)
        assert reward == expected
        assert info["bumped"] == wall
        assert not terminated
        assert (observed["place"] == place).all()
        assert info["coverage"] == pytest.approx(len(visited) / reachable)


def test_the_same_seed_gives_the_same_walk_and_the_next_reset_another_maze():
    env, actions = MazeEnv(world=15, steps=30), np.random.default_rng(1).integers(0, 4, 30)
    first, again = walk(env, 7, actions), walk(env, 7, actions)
    assert data_equivalence(first, again, exact=True)
    second, _ = env.reset(), env.render()
    other = [env.step(action)[0] for action in actions]
    assert not data_equivalence([said[0] for said in first[1:]], other)
    assert data_equivalence(second[1]["bumped"], False)


def test_splits_never_share_a_maze():
    pictures = []
    for split in ("train", "valid", "test"):
        env = MazeVectorEnv(50, world=15, steps=5, split=split)
        env.reset(seed=3)
        pictures += [walls.tobytes() for walls in env.walks.world.walls]
    assert len(set(pictures)) == 150


def test_walks_can_be_made_to_end_at_different_times():
    env = MazeVectorEnv(4, world=5, steps=4)
    env.reset(seed=0, options={"elapsed": np.arange(4)})
    ends = [env.step(np.zeros(4, int))[3].tolist() for _ in range(4)]
    assert np.array(ends).argmax(axis=0).tolist() == [3, 2, 1, 0]


def test_a_restored_environment_goes_on_as_the_one_it_was_taken_from():
    env, actions = MazeVectorEnv(6, world=9, steps=7), np.random.default_rng(2)
    env.reset(seed=5)
    for _ in range(10):
        env.step(actions.integers(0, 4, 6))
    kept, further = env.snapshot(), actions.integers(0, 4, (20, 6))
    expected = [env.step(a) for a in further]
    other = MazeVectorEnv(6, world=9, steps=7)
    other.restore(kept)
    assert data_equivalence(expected, [other.step(a) for a in further], exact=True)


def test_the_picture_shows_walls_path_and_agent():
    env = gymnasium.make("mgmem/Maze-v0", world=9, steps=5, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (72, 72, 3)
    assert (picture[0, 0] == (43, 52, 64)).all()
    assert (picture[5 * 8 + 4, 5 * 8 + 4] == (213, 94, 0)).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [({"world": 8}, "odd"), ({"world": 3}, "5"), ({"steps": 0}, "at least 1"), ({"fov": 4}, "odd")],
)
def test_an_impossible_world_is_refused(options, word):
    for make in (MazeEnv, lambda **o: MazeVectorEnv(2, **o)):
        with pytest.raises(UsageError, match=word):
            make(**options)


def test_a_wrong_action_and_a_step_after_the_end_are_refused():
    env = MazeEnv(world=5, steps=2)
    with pytest.raises(UsageError, match="reset"):
        env.step(0)
    env.reset(seed=0)
    for action in (4, -1, 1.5, None):
        with pytest.raises(UsageError, match="0 \\(up\\)"):
            env.step(action)
    env.step(0)
    assert env.step(1)[3]
    with pytest.raises(UsageError, match="ended after 2 steps"):
        env.step(1)


def test_the_vector_environment_refuses_as_clearly():
    env = MazeVectorEnv(3, world=5, steps=2)
    with pytest.raises(UsageError, match="reset"):
        env.step(np.zeros(3, int))
    env.reset(seed=0)
    for actions, word in [
        (np.array([0, 1, 4]), "0 to 4"),
        (np.array([0, 1]), "shape"),
        (np.array([0.0, 1.0, 2.0]), "integers"),
    ]:
        with pytest.raises(UsageError, match=word):
            env.step(actions)
    with pytest.raises(UsageError, match="one each"):
        env.reset(seed=[1, 2])
    with pytest.raises(UsageError, match="at least 1"):
        MazeVectorEnv(0)
