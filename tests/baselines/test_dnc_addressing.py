import dnc_numpy
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from mgmem.baselines import dnc_addressing as addressing
from mgmem.baselines.dnc_addressing import (
    MemoryState,
    access,
    allocation_weights,
    content_weights,
    empty_memory,
    follow_links,
    interface_size,
    link_step,
    parse_interface,
    update_link,
    update_usage,
)

SIZES = [(5, 3, 1), (6, 4, 2), (9, 2, 4), (1, 3, 2)]  # slots, width, read heads


def empty(batch, slots, width, heads, dtype=torch.float64):
    return empty_memory(batch, slots, width, heads, torch.device("cpu"), dtype)


def random_state(batch, slots, width, heads, seed=0):
    """A state as in the middle of an episode: weights and links are sub-stochastic."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(batch, *shape, generator=generator, dtype=torch.float64)

    link = draw(slots, slots) / slots
    torch.diagonal(link, dim1=1, dim2=2).zero_()
    return MemoryState(
        memory=draw(slots, width) - 0.5,
        usage=draw(slots),
        precedence=draw(slots) / slots,
        link=link,
        write_weights=draw(slots) / slots,
        read_weights=draw(heads, slots) / slots,
        reads=draw(heads, width),
    )


@pytest.mark.parametrize(("slots", "width", "heads"), SIZES)
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_rollouts_agree_with_the_equations_of_the_paper(slots, width, heads, scale):
    steps, batch = 30, 3
    generator = torch.Generator().manual_seed(slots)
    size = interface_size(width, heads)
    vectors = scale * torch.randn(steps, batch, size, generator=generator, dtype=torch.float64)
    state = empty(batch, slots, width, heads)
    states = [dnc_numpy.zero_state(slots, width, heads) for _ in range(batch)]
    for vector in vectors:
        # The regularisation is turned down so far that only rounding is left of it.
        state = access(parse_interface(vector, width, heads), state, epsilon=1e-30)
        states = [dnc_numpy.step(xi.numpy(), s) for xi, s in zip(vector, states, strict=True)]
        for name, value in state._asdict().items():
            expected = np.stack([s[name] for s in states])
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("slots", "width", "heads"), SIZES)
def test_default_epsilon_stays_within_1e_5_of_the_paper(slots, width, heads):
    batch = 3
    state = random_state(batch, slots, width, heads)
    vector = torch.randn(batch, interface_size(width, heads), dtype=torch.float64)
    after = access(
        parse_interface(vector.float(), width, heads), MemoryState(*(s.float() for s in state))
    )
    for b in range(batch):
        before = {name: value[b].numpy() for name, value in state._asdict().items()}
        for name, expected in dnc_numpy.step(vector[b].numpy(), before).items():
            value = getattr(after, name)[b]
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)


def test_interface_has_the_published_size():
    assert interface_size(width=16, read_heads=4) == 16 * 4 + 3 * 16 + 5 * 4 + 3
    assert interface_size(width=64, read_heads=4) == 64 * 4 + 3 * 64 + 5 * 4 + 3


@pytest.mark.parametrize("block", [1, 1 << 18])
def test_fused_link_step_is_the_plain_one(block, monkeypatch):
    monkeypatch.setattr(addressing, "_BLOCK_NUMBERS", block)
    state = random_state(3, 7, 2, 2)
    leaves = [state.link, state.write_weights, state.precedence, state.read_weights]

    def plain(link, write, precedence, reads):
        new = update_link(link, write, precedence)
        return new, *follow_links(new, reads)

    def values_and_gradients(function):
        inputs = [leaf.clone().requires_grad_() for leaf in leaves]
        outputs = function(*inputs)
        loss = sum((out * torch.sin(1 + out)).sum() for out in outputs)
        return [*outputs, *torch.autograd.grad(loss, inputs)]

    expected = values_and_gradients(plain)
    torch.testing.assert_close(values_and_gradients(link_step), expected)
    with torch.no_grad():
        torch.testing.assert_close(list(link_step(*leaves)), expected[:3])


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1, 2)])
def test_link_step_passes_gradcheck_whichever_outputs_are_used(which):
    state = random_state(2, 4, 2, 3)
    inputs = [state.link, state.write_weights, state.precedence, state.read_weights]
    inputs = [value.requires_grad_() for value in inputs]
    assert gradcheck(lambda *args: tuple(link_step(*args)[i] for i in which), inputs)


def test_access_passes_gradcheck():
    slots, width, heads = 4, 3, 2
    state = random_state(2, slots, width, heads)
    vector = torch.randn(2, interface_size(width, heads), dtype=torch.float64)
    # Slots of nearly equal usage would change places within the probing step.
    assert update_usage(*_usage_arguments(vector, state)).sort().values.diff().min() > 1e-3

    def run(vector, *fields):
        return tuple(access(parse_interface(vector, width, heads), MemoryState(*fields)))

    assert gradcheck(run, [value.requires_grad_() for value in (vector, *state)], atol=1e-4)


def _usage_arguments(vector, state):
    free_gates = parse_interface(vector, 3, 2).free_gates
    return state.usage, state.write_weights, state.read_weights, free_gates


def test_links_and_usage_stay_in_bounds_over_2000_random_steps():
    slots, width, heads, steps = 8, 3, 2, 2_000
    # From gates near a half to saturated ones: every sequence has its own scale.
    scales = torch.tensor([0.1, 1.0, 3.0, 10.0, 100.0, 1e4]).unsqueeze(1)
    generator = torch.Generator().manual_seed(0)
    state = empty(len(scales), slots, width, heads, torch.float32)
    rows, columns, usages, weights = [], [], [], []
    for _ in range(steps):
        vector = torch.randn(len(scales), interface_size(width, heads), generator=generator)
        with torch.no_grad():
            state = access(parse_interface(scales * vector, width, heads), state)
        rows.append(state.link.sum(2))
        columns.append(state.link.sum(1))
        usages.append(state.usage)
        weights += [state.read_weights.sum(-1), state.write_weights.sum(-1, keepdim=True)]
    assert torch.stack(rows).max() <= 1 + 1e-5
    assert torch.stack(columns).max() <= 1 + 1e-5
    assert torch.stack(usages).min() >= 0
    assert torch.stack(usages).max() <= 1
    assert torch.cat(weights, dim=1).min() >= -1e-5
    assert torch.cat(weights, dim=1).max() <= 1 + 1e-5
    # The bounds are nearly reached, so the run did go to the extremes.
    assert torch.stack(rows).max() > 0.99
    assert torch.stack(usages).max() > 0.99


def test_allocation_prefers_the_least_used_slots_and_never_turns_negative():
    usage = torch.tensor([[0.9, 0.0, 0.5], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.2, 1.0]])
    weights = allocation_weights(usage)
    expected = [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.8, 0.0]]
    torch.testing.assert_close(weights, torch.tensor(expected), atol=1e-5, rtol=0)
    assert (weights >= 0).all()


@pytest.mark.parametrize("level", [0.0, 1e-8, 0.5, 1.0])
def test_allocation_of_500_slots_has_finite_gradients(level):
    usage = torch.full((2, 500), level, requires_grad=True)
    weights = allocation_weights(usage)
    (weights * torch.randn(2, 500)).sum().backward()
    assert weights.isfinite().all()
    assert usage.grad.isfinite().all()


def test_content_lookup_of_empty_memory_is_even_with_finite_gradients():
    memory = torch.zeros(1, 5, 3, requires_grad=True)
    keys = torch.tensor([[[0.0, 0.0, 0.0], [1e4, 0.0, -1e4]]], requires_grad=True)
    weights = content_weights(memory, keys, torch.tensor([[1.0, 100.0]]))
    torch.testing.assert_close(weights, torch.full((1, 2, 5), 0.2))
    (weights * torch.randn(1, 2, 5)).sum().backward()
    assert memory.grad.isfinite().all()
    assert keys.grad.isfinite().all()


def test_content_lookup_finds_the_slot_that_points_the_same_way():
    memory = torch.randn(2, 20, 8)
    keys = 3 * memory[:, [4, 11]]
    weights = content_weights(memory, keys, torch.full((2, 2), 50.0))
    assert weights.argmax(-1).tolist() == [[4, 11], [4, 11]]
