"""Without memory it is a multigrid CNN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comparing import assert_close, slow_convolution, slow_neighbours
from mgmem import MultigridCNN, Pyramid


def _independent(network: MultigridCNN, grids: dict[int, Tensor]) -> dict[int, Tensor]:
    """The same network, written apart from it; takes only its weights."""
    for number, (layer, module) in enumerate(zip(network.spec, network.layers, strict=True), 1):
        new = {}
        for level, weight, bias in zip(layer.levels, module.weights, module.biases, strict=True):
            y = slow_convolution(slow_neighbours(grids, level), weight)
            y = y + bias.view(1, -1, *[1] * (y.dim() - 2))
            new[level] = y if number == len(network.spec) else y.clamp(min=0)
        grids = new
    return grids


@pytest.mark.parametrize(
    ("input", "spec", "base", "kernel"),
    [
        ("0:2", "0:3 0:2", (5, 4), 3),
        ("0:2", "0-1:3 0-2:2 1-3:2 2:1", (3, 1), 3),
        ("1-2:1", "0-3:2 0-2:2 0:3", (1, 2), 5),
        ("0-1:2", "0-2:2 0-3:1", (3,), 1),
    ],
)
def test_no_memory_is_a_multigrid_cnn(
    input: str, spec: str, base: tuple[int, ...], kernel: int
) -> None:
    wide = {"dtype": torch.float64}
    network = MultigridCNN(input, spec, base, kernel=kernel, residual=False, **wide)
    grids = {
        level: torch.randn(3, network.input.channels, *(side << level for side in base), **wide)  # type: ignore[call-overload]
        for level in network.input.levels
    }
    answer = network(Pyramid(network.input.lowest, tuple(grids.values())))
    expected = _independent(network, grids)
    assert list(answer.levels) == list(expected)
    for level, grid in expected.items():
        assert_close(answer[level], grid, 1e-12)
    assert network.output_shape == tuple(answer.finest.shape[1:])


def test_the_last_layer_is_linear_unless_told() -> None:
    torch.manual_seed(1)
    linear = MultigridCNN(2, "0:4 0:4")
    torch.manual_seed(1)
    bent = MultigridCNN(2, "0:4 0:4", final_relu=True)
    x = torch.randn(2, 2, 3, 3)
    assert bool((linear(x)[0] < 0).any())
    assert torch.equal(bent(x)[0], linear(x)[0].relu())


def test_norm_follows_the_relu() -> None:
    network = MultigridCNN(2, "0-1:3 0:1", norm=True, final_relu=True)
    h = network.layers[0](Pyramid(0, (torch.randn(8, 2, 3, 3),)))
    for grid in h:
        assert_close(grid.mean((0, 2, 3)), torch.zeros(3), 1e-3)
        assert bool((grid < 0).any())
        # Everything that the ReLU cut off sits at one value, the smallest of its channel.
        assert bool((grid == grid.amin((0, 2, 3), keepdim=True)).sum() > 10)
    assert all(norm.eps == 0.001 for norm in network.layers[0].norm.levels)


def test_weights_start_with_variance_two_over_the_fan_in_and_biases_at_zero() -> None:
    layer = MultigridCNN(16, "0:64").layers[0]
    weight = layer.weights[0].detach()
    assert abs(float(weight.var()) * (16 * 9) / 2 - 1) < 0.1
    assert not layer.biases[0].detach().any()


def test_the_references_start_is_uniform_within_the_root_of_the_fan_in() -> None:
    layer = MultigridCNN(16, "0:64").layers[0]
    layer.reset_parameters("reference")
    bound = 1 / (16 * 9) ** 0.5
    for tensor in (layer.weights[0], layer.biases[0]):
        assert 0.9 * bound < float(tensor.detach().abs().max()) <= bound


def test_a_signal_keeps_its_size_through_ten_layers_where_the_references_start_loses_it() -> None:
    x = torch.randn(64, 16, 3, 3)
    network = MultigridCNN(16, " ".join(["0:64"] * 10), residual=False)
    spread = {}
    for init in ("he", "reference"):
        for layer in network.layers:
            layer.reset_parameters(init)
        spread[init] = float(network(x)[0].detach().std(0).mean())
    assert 0.01 < spread["he"] < 1  # zeros around a 3x3 grid take their part
    assert spread["reference"] < 0.001 * spread["he"]


def test_residuals_join_every_second_layer() -> None:
    network = MultigridCNN(1, "0-1:2 0-1:2 0-1:3 0:3 0:3", final_relu=True)
    x = torch.randn(2, 1, 3, 3)
    first = network.layers[0](Pyramid(0, (x,)))
    second = network.layers[1](first)
    third = network.layers[2](second)
    for level in (0, 1):
        third[level][:, :2] += first[level]
    fourth = network.layers[3](third)
    fifth = network.layers[4](fourth)
    assert_close(network(x)[0], fifth[0] + third[0], 1e-6)
