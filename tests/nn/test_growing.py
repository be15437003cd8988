"""A large network begins with what a smaller one has learned, and with states that vary."""

from __future__ import annotations

import pytest
import torch

from mgmem import MultigridMemory
from mgmem.errors import UsageError
from mgmem.nn import ReadWrite
from mgmem.nn.growing import grow
from mgmem.nn.varying import vary

SMALL = ("0-1:2 0-1:2 0-2:3 0-2:3", "0-2:4 1-2:4 2:1")
LARGE = ("0-1:3 0-1:2 0-2:5 0-2:6 0-3:4", "0-3:6 1-3:5 2-3:4 3:1")


def network(spec: str, tail: str, seed: int, residual: bool = False) -> ReadWrite:
    torch.manual_seed(seed)
    memory = MultigridMemory(3, spec, residual=residual)
    return ReadWrite(memory, [memory.reader(tail=tail, residual=residual)])


@pytest.fixture
def walk() -> torch.Tensor:
    return torch.randn(6, 4, 3, 3, 3, generator=torch.Generator().manual_seed(0))


def test_a_grown_memory_writes_in_its_first_channels_what_the_smaller_one_wrote(walk) -> None:
    small, large = network(*SMALL, seed=1), network(*LARGE, seed=2)
    grow(large, small)
    h, _ = large.memory(walk)
    expected, _ = small.memory(walk)
    for layer, wanted in zip(h, expected, strict=False):
        for grid, same in zip(layer, wanted, strict=True):
            torch.testing.assert_close(grid[:, :, : same.shape[2]], same)


def test_a_grown_reader_reads_in_its_first_channels_what_the_smaller_one_read(walk) -> None:
    small, large = network(*SMALL, seed=1), network(*LARGE, seed=2)
    grow(large, small)
    seen: dict[str, list] = {"small": [], "large": []}
    for name, net in (("small", small), ("large", large)):
        for layer in net.readers[0].layers:
            layer.register_forward_hook(lambda _, __, out, name=name: seen[name].append(out))
        net(walk, queries=walk[:1], times=torch.tensor([5]))
    for grids, wanted in zip(seen["large"], seen["small"][:-1], strict=False):
        for level in wanted.levels:
            grid, same = grids.get(level), wanted.get(level)
            # The new finest level is seen from the one below it, past the smaller mesh.
            if level + 1 in grids.levels and level + 1 not in wanted.levels:
                continue
            torch.testing.assert_close(grid[:, : same.shape[1]], same)


def test_what_is_told_in_another_measure_comes_to_the_same(walk) -> None:
    small, large = network(*SMALL, seed=1), network(*LARGE, seed=2)
    grow(large, small, (1.0, 0.5, 2.0))
    told = walk * torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1)
    h, _ = large.memory(told)
    expected, _ = small.memory(walk)
    torch.testing.assert_close(h[3].finest[:, :, :3], expected[3].finest)


def test_new_channels_keep_their_fresh_weights_and_learn(walk) -> None:
    small, large = network(*SMALL, seed=1, residual=True), network(*LARGE, seed=2, residual=True)
    fresh = large.memory.layers[2].input_weights[0].detach().clone()
    grow(large, small)
    grown = large.memory.layers[2].input_weights[0]
    new = [gate * 5 + channel for gate in range(4) for channel in (3, 4)]
    assert torch.equal(grown[new], fresh[new])
    (answer,), _ = large(walk, queries=walk[:1], times=torch.tensor([5]))
    answer.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in large.parameters())


@pytest.mark.parametrize(
    "large",
    [("0-1:2 0-1:2 0-2:2 0-2:3", "0-2:4 1-2:4 2:1"), ("0-1:2 0-1:2", "0-2:4 1-2:4 2:1")],
)
def test_a_network_without_room_for_the_smaller_one_is_refused(large: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="has no room for"):
        grow(network(*large, seed=1), network(*SMALL, seed=2))


@pytest.mark.parametrize("residual", [True, False])
def test_states_of_every_grid_vary_alike_after_scaling(walk, residual: bool) -> None:
    memory = network("0-1:3 0-1:2 0-2:5 0-2:6 0-3:4", "2:1", 0, residual).memory
    walk = walk.repeat(1, 4, 1, 1, 1) + 0.1 * torch.randn(6, 16, 3, 3, 3)
    before = memory(walk)[0][-1].finest.std()
    vary(memory, walk)
    h, _ = memory(walk)
    assert h[-1].finest.std() > before
    for index, layer in enumerate(h):
        for level, grid in zip(layer.levels, layer, strict=True):
            earlier = h[index - 2].get(level) if residual and index in (2, 4) else None
            own = grid.clone()
            if earlier is not None and earlier.shape[2] <= own.shape[2]:
                own[:, :, : earlier.shape[2]] -= earlier
            deviation = (own[3:] - own[3:].mean((0, 1))).square().mean().sqrt()
            assert 0.08 < deviation < 0.12, (index, level)
