"""Muon: orthogonal steps, gate by gate, resumable."""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mgmem import MultigridMemory
from mgmem.training.optim import Muon, OrthogonalMomentum, orthogonal


def gradients_for(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator)


@given(rows=st.integers(1, 24), columns=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_orthogonal_matrices_have_singular_values_near_one(rows, columns, seed):
    matrices = torch.randn(3, rows, columns, generator=torch.Generator().manual_seed(seed))
    values = torch.linalg.svdvals(orthogonal(matrices))
    # A value a thousandth of the largest is not raised to one in five rounds, and need not be.
    large = torch.linalg.svdvals(matrices)
    counted = large > 0.02 * large[:, :1]
    assert (values[counted] > 0.3).all()
    assert (values < 1.3).all()


def test_four_stacked_gates_step_as_four_matrices():
    stacked = nn.Parameter(torch.zeros(4 * 6, 5, 3, 3))
    apart = [nn.Parameter(torch.zeros(6, 5, 3, 3)) for _ in range(4)]
    one = OrthogonalMomentum([{"params": [stacked], "matrices": 4}])
    four = OrthogonalMomentum([{"params": apart}])
    for seed in range(3):
        gradients_for([stacked], seed)
        for p, grad in zip(apart, stacked.grad.chunk(4), strict=True):
            p.grad = grad.clone()
        one.step()
        four.step()
    torch.testing.assert_close(stacked, torch.cat([*apart]), atol=1e-6, rtol=1e-5)


def test_a_memory_s_gates_are_known_to_be_four():
    memory = MultigridMemory(2, "0-1:4 0-2:4")
    optimizer = Muon().build(memory)
    by_matrices = {group["matrices"]: group["params"] for group in optimizer.param_groups}
    assert {p.shape[0] for p in by_matrices[4]} == {16}
    assert all(p.dim() == 1 for p in by_matrices[1])
    assert sum(len(params) for params in by_matrices.values()) == len([*memory.parameters()])


def test_steps_are_of_the_size_of_adamw_s():
    weight = nn.Parameter(torch.zeros(16, 12, 3, 3))
    optimizer = OrthogonalMomentum([{"params": [weight]}], lr=1e-2)
    gradients_for([weight], 0)
    optimizer.step()
    size = weight.detach().square().mean().sqrt()
    # 0.2 of the learning rate, times the orthogonal matrix's own size.
    assert 1e-3 < size < 1e-2


def test_a_saved_optimiser_goes_on_as_if_never_stopped():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LSTMCell(8, 4))
    other = copy.deepcopy(model)
    first = Muon().build(model)
    second = Muon().build(other)
    for seed in range(2):
        gradients_for(model.parameters(), seed)
        first.step()
    other.load_state_dict(model.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for params, optimizer in ((model.parameters(), first), (other.parameters(), second)):
        gradients_for(params, 2)
        optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_kernels_decay_and_gates_and_biases_do_not():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LSTMCell(8, 4))
    start = copy.deepcopy(model)
    for network, decay in ((model, 1.0), (other := copy.deepcopy(model), 0.0)):
        optimizer = Muon(weight_decay=decay).build(network)
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        gradients_for(network.parameters(), 0)
        optimizer.step()
    for name, decayed in model.named_parameters():
        expected = other.get_parameter(name)
        if name == "0.weight":
            expected = expected - 0.1 * start.get_parameter(name)
        torch.testing.assert_close(decayed, expected, atol=1e-6, rtol=1e-5)


def test_gates_step_at_a_rate_of_their_own_and_biases_as_all_others():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LSTMCell(8, 4))
    start = copy.deepcopy(model)
    for network, rate in ((model, 3.0), (other := copy.deepcopy(model), 1.0)):
        optimizer = Muon(gate_rate=rate).build(network)
        gradients_for(network.parameters(), 0)
        optimizer.step()
    for name, before in start.named_parameters():
        times = 3.0 if name in ("1.weight_ih", "1.weight_hh") else 1.0
        step, usual = (network.get_parameter(name) - before for network in (model, other))
        torch.testing.assert_close(step, times * usual, atol=1e-7, rtol=1e-4)
