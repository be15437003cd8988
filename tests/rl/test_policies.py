"""Policies: from what is seen to chances and values."""

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.experiments import count_parameters
from mgmem.experiments.explore import EXPLORATIONS, SYSTEMS, load_mapper, make_policy, make_sight
from mgmem.rl.policy import LSTMPolicy, ReactivePolicy, ReaderPolicy, select


def moments(channels, time=4, batch=3, window=6):
    seen = torch.randn(time, batch, channels, window, window).half()
    return seen, torch.randn(time, batch, 4, 3, 3), torch.zeros(time, batch, dtype=torch.bool)


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_every_system_decides_alike_in_sequence_and_step_by_step(system, small, mapper):
    policy = make_policy(small, system, mapper, seed=0)
    seen, inputs, reset = moments(make_sight(small, system, mapper).channels)
    reset[2, 1] = True
    logits, values, _ = policy(seen, inputs, policy.initial_state(3), reset)
    assert logits.shape == (4, 3, 4)
    assert values.shape == (4, 3)
    state = policy.initial_state(3)
    for t in range(4):
        one, value, state = policy(seen[t : t + 1], inputs[t : t + 1], state, reset[t : t + 1])
        torch.testing.assert_close(one[0], logits[t], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(value[0], values[t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_some_walks_of_a_batch_give_what_the_batch_gives(system, small, mapper):
    policy = make_policy(small, system, mapper, seed=0)
    seen, inputs, reset = moments(make_sight(small, system, mapper).channels)
    state = policy.initial_state(3)
    _, _, state = policy(seen, inputs, state, reset)
    which = torch.tensor([2, 0])
    logits, _, _ = policy(seen, inputs, state, reset)
    some, _, _ = policy(seen[:, which], inputs[:, which], select(state, which), reset[:, which])
    torch.testing.assert_close(some, logits[:, which], atol=1e-5, rtol=1e-4)


def test_the_reactive_policy_sees_the_walls_around_it_and_nothing_else():
    policy, (seen, inputs, reset) = ReactivePolicy(), moments(0)
    other = inputs.clone()
    other[:, :, 2:] += 1.0
    same, _, _ = policy(seen, other, None, reset)
    assert torch.equal(policy(seen, inputs, None, reset)[0], same)
    other[:, :, 1] += 1.0
    assert not torch.equal(policy(seen, other, None, reset)[0], same)


def test_a_fresh_policy_prefers_nothing():
    policy = ReaderPolicy(5, window=6, spec="0-1:8 0:8")
    logits, _, _ = policy(*moments(5)[:2], None, moments(5)[2])
    assert float(logits.detach().softmax(2).sub(0.25).abs().max()) < 0.05


def test_the_lstm_has_as_many_parameters_as_memory_and_reader_together():
    exploration = EXPLORATIONS["explore-15"]
    mapper = load_mapper(exploration)
    memory = sum(p.numel() for p in mapper.model.memory.parameters())
    reader = count_parameters(make_policy(exploration, "memory", mapper, 0))
    lstm = count_parameters(make_policy(exploration, "lstm", mapper, 0))
    assert lstm == pytest.approx(memory + reader, rel=0.02)
    assert LSTMPolicy.hidden_for(lstm) == make_policy(exploration, "lstm", mapper, 0).memory.hidden


@pytest.mark.parametrize("options", [{"window": 7}, {"window": 6, "spec": "0-1:4 1:4"}])
def test_a_window_or_mesh_that_does_not_fit_is_refused(options):
    with pytest.raises(UsageError, match="ends on level 0"):
        ReaderPolicy(4, **options)
