"""PPO and A3C: what they compute, and that a run goes on from where it was stopped."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.experiments.explore import SYSTEMS, about_run, make_learner
from mgmem.rl import MazeVectorEnv
from mgmem.rl.a3c import A3C, Shared, _returns
from mgmem.rl.agent import Agent
from mgmem.rl.coverage import take_walks
from mgmem.rl.learning import Limits, learn
from mgmem.rl.policy import ReactivePolicy
from mgmem.rl.ppo import PPO, PPOLearner
from mgmem.rl.sight import NoSight
from mgmem.training import checkpoint
from mgmem.training.progress import Reporter


def same(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def run(learner, folder, about=None, **limits):
    """A run of the outer loop, quiet, with an evaluation that costs nothing."""
    folder.mkdir(exist_ok=True)
    with Reporter(folder, "test", 6, quiet=True) as reporter:
        scores = {"area": 0.5, "coverage": 0.5}
        limits = Limits(**{"updates": 6, "evaluate_every": 2, **limits})
        return learn(learner, lambda: scores, folder, about or {"run": 1}, limits, reporter)


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_every_system_learns_from_the_same_code(system, small, mapper):
    learner = make_learner(small, system, mapper, "ppo", seed=0)
    before = copied(learner.policy.state_dict())
    memory = copied(mapper.model.state_dict())
    said = learner.update()
    assert all(np.isfinite(value) for value in said.values())
    assert not same(before, learner.policy.state_dict())
    assert same(memory, mapper.model.state_dict())
    assert learner.steps == small.ppo.mazes * small.ppo.rollout


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_a_run_killed_and_resumed_has_the_weights_of_one_never_killed(
    system, small, mapper, tmp_path
):
    whole = make_learner(small, system, mapper, "ppo", seed=3)
    run(whole, tmp_path / "whole")
    for last in (2, 6):
        learner = make_learner(small, system, mapper, "ppo", seed=3)
        run(learner, tmp_path / "cut", max_updates=last)
    assert learner.done == whole.done == 6
    assert same(whole.policy.state_dict(), learner.policy.state_dict())
    ours, theirs = (checkpoint.newest(tmp_path / n)[0]["progress"] for n in ("whole", "cut"))
    assert [p["steps"] for p in ours["curve"]] == [p["steps"] for p in theirs["curve"]]


def test_another_run_in_the_same_folder_is_refused(small, mapper, tmp_path):
    def about(system):
        return {**about_run(small, system, mapper, "ppo", 0), "command": system}

    run(make_learner(small, "reactive", mapper, "ppo", 0), tmp_path, about("reactive"))
    with pytest.raises(UsageError, match="system: reactive there, lstm here"):
        run(make_learner(small, "lstm", mapper, "ppo", 0), tmp_path, about("lstm"))
    again = {**about("reactive"), "command": "the same with another limit"}
    assert run(make_learner(small, "reactive", mapper, "ppo", 0), tmp_path, again).best == 0.5


def test_a_run_stops_at_its_time_and_after_ctrl_c_with_a_checkpoint(
    small, mapper, tmp_path, monkeypatch
):
    learner = make_learner(small, "reactive", mapper, "ppo", 0)
    run(learner, tmp_path, max_minutes=0.0)
    assert learner.done == 1
    assert (tmp_path / "checkpoint-1.ckpt").is_file()
    update = learner.update

    def interrupted():
        signal.raise_signal(signal.SIGINT)
        return update()

    monkeypatch.setattr(learner, "update", interrupted)
    run(learner, tmp_path)
    assert learner.done == 2
    assert (tmp_path / "checkpoint-2.ckpt").is_file()


def test_advantages_add_up_errors_and_stop_where_a_walk_was_cut(small, mapper):
    learner = make_learner(small, "reactive", mapper, "ppo", 0)
    for _ in range(3):
        rollout = learner._walk()
    ppo = small.ppo
    values = torch.cat([rollout.values, rollout.last_value[None]])
    found, (time, batch) = learner._advantages(rollout), rollout.rewards.shape
    assert bool(rollout.ends.any())
    for walk in range(batch):
        for start in range(time):
            expected, weight = 0.0, 1.0
            for t in range(start, time):
                error = rollout.rewards[t, walk] + ppo.discount * values[t + 1, walk]
                expected += weight * float(error - values[t, walk])
                weight *= ppo.discount * ppo.trace
                if rollout.ends[t, walk]:
                    break
            assert float(found[start, walk]) == pytest.approx(expected, abs=1e-5)


def test_the_step_that_only_begins_a_walk_anew_teaches_nothing(small, mapper):
    learner = make_learner(small, "reactive", mapper, "ppo", 0)
    rollouts = [learner._walk() for _ in range(4)]
    ends = torch.cat([rollout.ends for rollout in rollouts])
    counts = torch.cat([rollout.counts for rollout in rollouts])
    fresh = torch.cat([rollout.glimpses.fresh for rollout in rollouts])
    rewards = torch.cat([rollout.rewards for rollout in rollouts])
    assert torch.equal(counts[1:], ~ends[:-1])
    assert torch.equal(fresh[1:], ~counts[:-1])
    assert not rewards[~counts].any()


def test_a_policy_learns_not_to_bump_in_moments(mapper):
    policy = ReactivePolicy(32)
    settings = PPO(updates=25, mazes=16, rollout=32, minibatches=4, lr=3e-3)
    agent = Agent(mapper.task, NoSight(), policy)
    learner = PPOLearner(agent, MazeVectorEnv(16, world=9, steps=40), settings)

    def bumps():
        walker = Agent(mapper.task, NoSight(), policy, seed=1)
        log = take_walks(walker, world=9, steps=40, count=32, seed=0, split="valid")
        return log.bumped.mean()

    before = bumps()
    for _ in range(25):
        learner.update()
    assert bumps() < 0.5 * before


def test_returns_go_on_with_the_value_where_a_walk_was_cut():
    rewards, values, last = torch.rand(5, 2), torch.rand(5, 2), torch.rand(2)
    ends = torch.zeros(5, 2, dtype=torch.bool)
    ends[2, 0] = ends[4, 1] = True
    found = _returns(rewards, ends, values, last, A3C(discount=0.9))
    first = rewards[0, 0] + 0.9 * (rewards[1, 0] + 0.9 * (rewards[2, 0] + 0.9 * values[3, 0]))
    second = sum(0.9**t * rewards[t, 1] for t in range(5)) + 0.9**5 * last[1]
    torch.testing.assert_close(found[0], torch.stack([first, second]))


def test_shared_weights_change_as_rmsprop_changes_them():
    policy = ReactivePolicy(8)
    other = ReactivePolicy(8)
    other.load_state_dict(policy.state_dict())
    settings = A3C(lr=0.01, final_lr=1.0, decay=0.9, epsilon=1e-10)
    shared = Shared.of(policy)
    theirs = torch.optim.RMSprop(other.parameters(), lr=0.01, alpha=0.9, eps=1e-5)
    for _ in range(3):
        gradients = [torch.rand_like(p) + 0.5 for p in policy.parameters()]
        shared.apply(gradients, settings)
        for parameter, gradient in zip(other.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        theirs.step()
    for one, two in zip(policy.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-3)
    assert int(shared.count) == 3


def test_workers_change_the_shared_weights_and_a_run_goes_on_from_its_checkpoint(
    small, mapper, tmp_path
):
    learner = make_learner(small, "reactive", mapper, "a3c", seed=0)
    before = copied(learner.policy.state_dict())
    run(learner, tmp_path, updates=3, max_updates=2)
    assert not same(before, learner.policy.state_dict())
    content, _ = checkpoint.newest(tmp_path)
    again = make_learner(small, "reactive", mapper, "a3c", seed=0)
    again.restore(content["learner"])
    assert same(content["learner"]["policy"], again.policy.state_dict())
    assert again.done == 2
    assert again.steps == 2 * small.a3c.segments * small.a3c.rollout * small.a3c.mazes
    run(again, tmp_path, updates=3)
    assert again.done == 3


def test_a_worker_that_fails_ends_the_run_with_its_exit_code(small, mapper):
    broken = replace(small, memory="no such memory")
    learner = make_learner(small, "reactive", mapper, "a3c", seed=0)
    learner._make = make_learner(broken, "reactive", mapper, "a3c", seed=0)._make
    with pytest.raises(UsageError, match="exit code 1"):
        learner.update()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (lambda: PPO(mazes=6, minibatches=4), "divide"),
        (lambda: PPO(epochs=0), "epochs is 0"),
        (lambda: A3C(workers=0), "workers is 0"),
    ],
)
def test_settings_that_can_not_be_are_refused(settings, word):
    with pytest.raises(UsageError, match=word):
        settings()
