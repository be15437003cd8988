"""The memory network: what it computes, held against independent spellings, and its options."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from comparing import (
    assert_all_close,
    assert_close,
    named_outputs,
    random_state,
    shaken,
    slow_convolution,
    slow_lstm,
    slow_neighbours,
)
from mgmem import MultigridMemory, Pyramid, backend
from mgmem.errors import UsageError

WIDE = {"dtype": torch.float64}


def _memory(
    input: int | str, spec: str, base: tuple[int, ...], **options: object
) -> MultigridMemory:
    memory = shaken(MultigridMemory(input, spec, base, **{**WIDE, **options}))  # type: ignore[arg-type]
    assert isinstance(memory, MultigridMemory)
    return memory


def _x(time: int, batch: int, channels: int, base: tuple[int, ...]) -> Tensor:
    return torch.randn(time, batch, channels, *base, **WIDE)  # type: ignore[call-overload, no-any-return]


# One result, however time is cut.


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.booleans())
def test_any_chunking_gives_the_same_numbers(chunks: list[int], with_resets: bool) -> None:
    time = sum(chunks)
    memory = _memory(2, "0-1:2 0-2:2 0-1:3", (2, 3), peephole="channel")
    x, state = _x(time, 2, 2, (2, 3)), random_state(memory, 2)
    reset = torch.rand(time, 2) < 0.3 if with_resets else None
    whole = named_outputs(*memory(x, state, reset=reset))
    parts, start = [], 0
    for length in chunks:
        part = slice(start, start + length)
        h, state = memory(x[part], state, reset=None if reset is None else reset[part])
        parts.append(h)
        start += length
    joined = [
        Pyramid(layers[0].lowest, tuple(map(torch.cat, zip(*layers, strict=True))))
        for layers in zip(*parts, strict=True)
    ]
    assert_all_close(named_outputs(joined, state), whole, 1e-12)


@pytest.mark.parametrize("way", ["reference", "scan"])
@pytest.mark.parametrize(
    ("spec", "base", "norm"),
    [
        ("0:2 0:2", (3, 3), False),
        ("0-1:2 0-2:2 0-2:3", (3,), False),
        ("0-1:2 0:2 0:2", (1, 2), True),
    ],
)
def test_a_sequence_equals_its_steps(
    spec: str, base: tuple[int, ...], norm: bool, way: str
) -> None:
    memory = _memory(2, spec, base, norm=norm).eval()
    x = _x(5, 3, 2, base)
    with backend(way):
        h, last = memory(x)
        state = None
        for t in range(5):
            now, state = memory.step(x[t], state)
            for layer, at_t in zip(h, now, strict=True):
                for grid, step_grid in zip(layer, at_t, strict=True):
                    assert_close(step_grid, grid[t], 1e-12)
    assert_all_close(state.tensors(), last.tensors(), 1e-12)


def test_truncated_back_propagation_stops_at_detach() -> None:
    memory = _memory(2, "0-1:2", (3, 3))
    early, late = (_x(2, 1, 2, (3, 3)).requires_grad_() for _ in range(2))
    _, state = memory(early)
    h, _ = memory(late, state.detach())
    h[0].finest.sum().backward()
    assert early.grad is None
    assert late.grad is not None
    assert bool(late.grad.any())


# Held against independent implementations.


@pytest.mark.parametrize("base", [(5, 4), (7,)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_one_level_per_layer_is_a_conv_lstm(base: tuple[int, ...], kernel: int) -> None:
    memory = _memory(2, "0:3 0:2 0:4", base, kernel=kernel, residual=False)
    state = random_state(memory, 2)
    sequence = list(x := _x(4, 2, 2, base))
    h, last = memory(x, state)
    for layer, outputs, old, new in zip(memory.layers, h, state.layers, last.layers, strict=True):
        weights = layer.input_weights[0], layer.recurrent_weights[0], layer.biases[0]
        sequence, c = slow_lstm(sequence, old.h[0], old.c[0], *weights)
        assert_close(outputs[0], torch.stack(sequence), 1e-12)
        assert_close(new.h[0], sequence[-1], 1e-12)
        assert_close(new.c[0], c, 1e-12)


@pytest.mark.parametrize("base", [(3, 1), (3,)])
def test_many_levels_are_conv_lstms_that_read_their_neighbours(base: tuple[int, ...]) -> None:
    memory = _memory("0-1:2", "0-2:2 1-2:3 0-3:2", base, residual=False)
    grids = {level: _x(3, 2, 2, tuple(n << level for n in base)) for level in (0, 1)}
    h, _ = memory(Pyramid(0, tuple(grids.values())))
    steps = [{level: grid[t] for level, grid in grids.items()} for t in range(3)]
    for layer, outputs in zip(memory.layers, h, strict=True):
        by_level = {}
        for index, level in enumerate(outputs.levels):
            read = [slow_neighbours(step, level) for step in steps]
            empty = torch.zeros_like(outputs[level][0])
            weights = (
                layer.input_weights[index],
                layer.recurrent_weights[index],
                layer.biases[index],
            )
            by_level[level], _ = slow_lstm(read, empty, empty, *weights)
            assert_close(outputs[level], torch.stack(by_level[level]), 1e-12)
        steps = [{level: by_level[level][t] for level in by_level} for t in range(3)]


def _cut(memory: MultigridMemory) -> None:
    """Set every weight between levels and every recurrent weight to zero."""
    below = memory.input
    with torch.no_grad():
        for module, layer in zip(memory.layers, memory.spec, strict=True):
            for index, level in enumerate(layer.levels):
                module.recurrent_weights[index].zero_()
                start = below.channels if level - 1 in below.levels else 0
                same = below.channels if level in below.levels else 0
                weight = module.input_weights[index]
                weight[:, :start] = 0
                weight[:, start + same :] = 0
            below = layer


def test_with_cross_scale_and_recurrent_weights_at_zero_nothing_crosses() -> None:
    memory = _memory("0-2:2", "0-2:2 0-2:3 0-2:2", (3, 2))
    _cut(memory)
    x = Pyramid(0, tuple(_x(3, 2, 2, (3 << level, 2 << level)) for level in range(3)))
    before, _ = memory(x)
    for touched in range(3):
        grids = [grid + 1 if level == touched else grid for level, grid in enumerate(x)]
        after, _ = memory(Pyramid(0, tuple(grids)))
        for one, other in zip(before, after, strict=True):
            for level in range(3):
                assert torch.equal(one[level], other[level]) == (level != touched)


def test_with_forgetting_cut_too_steps_do_not_know_of_each_other() -> None:
    memory = _memory(2, "0-1:2 0-1:2 0-2:2", (3, 3))
    _cut(memory)
    with torch.no_grad():
        for module, layer in zip(memory.layers, memory.spec, strict=True):
            for weight, bias in zip(module.input_weights, module.biases, strict=True):
                forget = slice(layer.channels, 2 * layer.channels)
                weight[forget], bias[forget] = 0, -1e4
    x, order = _x(4, 2, 2, (3, 3)), torch.tensor([2, 0, 3, 1])
    forwards, shuffled = memory(x)[0], memory(x[order])[0]
    for one, other in zip(forwards, shuffled, strict=True):
        for grid, shuffled_grid in zip(one, other, strict=True):
            assert_close(shuffled_grid, grid[order], 1e-12)


def test_changing_cells_of_one_sequence_leaves_the_others_alone() -> None:
    memory = _memory(2, "0-1:2 0-2:2", (3, 3))
    x = _x(3, 4, 2, (3, 3))
    other = x.clone()
    other[:, 2] += 1
    for one, two in zip(memory(x)[0], memory(other)[0], strict=True):
        same = (one.finest == two.finest).flatten(2).all(2).all(0)
        assert same.tolist() == [True, True, False, True]


# Lengths and resets.


@pytest.mark.parametrize("way", ["reference", "scan"])
@pytest.mark.parametrize("norm", [False, True])
def test_lengths_stop_each_sequence_where_it_ends(way: str, norm: bool) -> None:
    memory = _memory(2, "0-1:2 0-1:2 0-2:3", (3, 2), norm=norm).eval()
    x, lengths = _x(5, 3, 2, (3, 2)), [5, 2, 0]
    start = random_state(memory, 3)
    with backend(way):
        h, state = memory(x, start, lengths=torch.tensor(lengths))
        for index, length in enumerate(lengths):
            alone_h, alone = memory(x[:length, index : index + 1], start.select([index]))
            assert_all_close(state.select([index]).tensors(), alone.tensors(), 1e-12)
            for layer, alone_layer in zip(h, alone_h, strict=True):
                for grid, alone_grid in zip(layer, alone_layer, strict=True):
                    assert_close(grid[:length, index : index + 1], alone_grid, 1e-12)
                    assert not bool(grid[length:, index].any())


def test_padding_does_not_reach_the_statistics_of_batch_norm() -> None:
    outputs = []
    for padding in (0.0, 100.0):
        torch.manual_seed(0)
        memory = _memory(2, "0-1:2 0-1:2", (3, 3), norm=True).train()
        x = _x(4, 2, 2, (3, 3))
        x[2:, 1] = padding
        h, _ = memory(x, lengths=torch.tensor([4, 2]))
        outputs.append(
            torch.cat([h[-1].finest.flatten(), *(b for b in memory.buffers() if b.dim())])
        )
    assert torch.equal(*outputs)


@pytest.mark.parametrize("way", ["reference", "scan"])
def test_a_reset_starts_that_sequence_afresh_and_spares_what_came_before(way: str) -> None:
    memory = _memory(2, "0-1:2 0-1:2 0-2:3", (3, 3))
    x, start = _x(6, 2, 2, (3, 3)), random_state(memory, 2)
    reset = torch.zeros(6, 2, dtype=torch.bool)
    reset[3, 0] = True
    with backend(way):
        h, state = memory(x, start, reset=reset)
        before, _ = memory(x[:3], start)
        afresh, afresh_state = memory(x[3:, :1])
        untouched, untouched_state = memory(x, start)
    for got, a, b, c in zip(h, before, afresh, untouched, strict=True):
        assert_close(got.finest[:3], a.finest, 1e-12)
        assert_close(got.finest[3:, :1], b.finest, 1e-12)
        assert_close(got.finest[:, 1], c.finest[:, 1], 1e-12)
    assert_all_close(state.select([0]).tensors(), afresh_state.tensors(), 1e-12)
    assert_all_close(state.select([1]).tensors(), untouched_state.select([1]).tensors(), 1e-12)


@pytest.mark.parametrize("way", ["reference", "scan"])
def test_a_reset_after_the_end_of_a_sequence_does_not_touch_its_state(way: str) -> None:
    memory = _memory(2, "0-1:2", (3, 3))
    x, reset = _x(4, 2, 2, (3, 3)), torch.zeros(4, 2, dtype=torch.bool)
    reset[3] = True
    with backend(way):
        _, state = memory(x, lengths=torch.tensor([2, 4]), reset=reset)
        _, ended = memory(x[:2])
    assert_all_close(state.select([0]).tensors(), ended.select([0]).tensors(), 1e-12)


# Residuals, norm, peepholes, input.


def test_residuals_add_layer_l_minus_2_to_what_is_handed_on_and_not_to_the_recurrence() -> None:
    memory = _memory(2, "0-1:2 0-1:2 0-2:3 0-2:3 0-2:3", (3, 2))
    x = _x(1, 1, 2, (3, 2))
    h, state = memory(x)
    plain = [layer.h for layer in state.layers]
    for index in (0, 1, 3):
        for level in h[index].levels:
            assert torch.equal(h[index][level][0], plain[index][level])
    for level in (0, 1):
        expected = plain[2][level].clone()
        expected[:, :2] += h[0][level][0]
        assert_close(h[2][level][0], expected, 1e-12)
    assert torch.equal(h[2][2][0], plain[2][2])
    for level in (0, 1, 2):
        assert_close(h[4][level][0], plain[4][level] + h[2][level][0], 1e-12)


def test_residuals_reach_the_next_layer() -> None:
    memory = _memory(2, "0:2 0:2 0:2 0:2", (3, 3))
    x = _x(3, 1, 2, (3, 3))
    h, _ = memory(x)
    layer = memory.layers[3]
    empty = torch.zeros_like(h[3][0][0])
    weights = layer.input_weights[0], layer.recurrent_weights[0], layer.biases[0]
    outputs, _ = slow_lstm(list(h[2][0]), empty, empty, *weights)
    assert_close(h[3][0], torch.stack(outputs), 1e-12)


def test_nothing_is_added_where_the_earlier_layer_has_more_channels() -> None:
    with_, without = (_memory(2, "0:4 0:2 0:2", (3, 3), residual=flag) for flag in (True, False))
    without.load_state_dict(with_.state_dict())
    x = _x(2, 1, 2, (3, 3))
    assert torch.equal(with_(x)[0][2][0], without(x)[0][2][0])


def test_batch_norm_stands_between_layers_with_statistics_over_time_and_batch() -> None:
    memory = _memory(2, "0-1:3 0-1:2", (3, 2), norm=True, residual=False)
    for norm in memory.norms:
        for level in norm.levels:
            torch.nn.init.ones_(level.weight)
            torch.nn.init.zeros_(level.bias)
    x = _x(4, 3, 2, (3, 2))
    h, state = memory(x)
    bare = _memory(2, "0-1:3", (3, 2))
    bare.load_state_dict(
        {k: v for k, v in memory.state_dict().items() if k.startswith("layers.0.")}
    )
    plain, plain_state = bare(x)
    for level in (0, 1):
        grid = plain[0][level]
        mean = grid.mean((0, 1, 3, 4), keepdim=True)
        variance = ((grid - mean) ** 2).mean((0, 1, 3, 4), keepdim=True)
        assert_close(h[0][level], (grid - mean) / (variance + 0.001).sqrt(), 1e-10)
        assert torch.equal(state.layers[0].h[level], plain_state.layers[0].h[level])


def test_batch_norm_of_a_batch_of_one_runs_over_the_sequence() -> None:
    memory = MultigridMemory(2, "0-1:3", (1,), norm=True, **WIDE)
    h, _ = memory(_x(6, 1, 2, (1,)))
    for grid in h[0]:
        assert_close(grid.mean((0, 1, 3)), torch.zeros(3, **WIDE), 1e-9)


def test_dropout_zeroes_its_share_of_what_layers_hand_on_and_leaves_the_recurrence_alone() -> None:
    torch.manual_seed(0)
    memory = MultigridMemory(2, "0-1:8 0-1:8", residual=False, dropout=0.3)
    x = torch.randn(20, 4, 2, 3, 3)
    h, state = memory(x)
    kept = memory.eval()(x)
    for grid in (grid for layer in h for grid in layer):
        assert abs((grid == 0).float().mean() - 0.3) < 0.02
    nothing = h[0].finest == 0
    torch.testing.assert_close(h[0].finest[~nothing], kept[0][0].finest[~nothing] / 0.7)
    assert all(map(torch.equal, state.layers[0].h, kept[1].layers[0].h))
    assert not torch.equal(state.layers[1].h.finest, kept[1].layers[1].h.finest)


def test_dropout_drops_the_same_when_activations_are_computed_again() -> None:
    memory = MultigridMemory(2, "0-1:4 0-1:4", dropout=0.5)
    x, found = torch.randn(6, 2, 2, 3, 3), []
    for chunks in ([x], x.split(3)):
        memory.checkpoint_every = 3 if len(chunks) == 1 else None
        torch.manual_seed(1)
        outputs, state = [], None
        for chunk in chunks:
            h, state = memory(chunk, state)
            outputs.append(h[-1].finest)
        memory.zero_grad()
        torch.cat(outputs).square().sum().backward()
        found.append([p.grad.clone() for p in memory.parameters() if p.grad is not None])
    for again, once in zip(*found, strict=True):
        torch.testing.assert_close(again, once)


def test_dropout_counts_in_training_only_and_step_by_step_too() -> None:
    memory = MultigridMemory(2, "0-1:4", dropout=0.5)
    x, state = torch.randn(2, 2, 3, 3), memory.initial_state(2)
    with torch.no_grad():
        one, other = (memory.step(x, state)[0][0].finest for _ in range(2))
        assert not torch.equal(one, other)
        memory.eval()
        one, other = (memory.step(x, state)[0][0].finest for _ in range(2))
        assert torch.equal(one, other)
    with pytest.raises(UsageError, match="dropout 1"):
        MultigridMemory(2, "0-1:4", dropout=1.0)


@pytest.mark.parametrize("peephole", ["channel", "cell"])
def test_peepholes_start_at_zero_and_count_once_they_move(peephole: str) -> None:
    torch.manual_seed(3)
    with_ = MultigridMemory(2, "0-1:2", (3, 3), peephole=peephole, **WIDE)  # type: ignore[arg-type]
    torch.manual_seed(3)
    without = MultigridMemory(2, "0-1:2", (3, 3), **WIDE)
    x = _x(3, 1, 2, (3, 3))
    assert_close(with_(x)[0][0].finest, without(x)[0][0].finest, 1e-12)
    torch.nn.init.ones_(with_.layers[0].peepholes[1])
    assert not torch.equal(with_(x)[0][0].finest, without(x)[0][0].finest)


def test_forget_gates_start_open() -> None:
    for forget_bias in (1.0, 4.0):
        memory = MultigridMemory(2, "0-1:3", forget_bias=forget_bias)
        for bias in memory.layers[0].biases:
            assert bias.tolist() == [0.0] * 3 + [forget_bias] * 3 + [0.0] * 6


def test_glorot_weights_have_the_range_of_input_and_recurrence_together() -> None:
    memory = MultigridMemory(8, "0:8", (3, 3))
    bound = (6 / ((8 + 8 + 32) * 9)) ** 0.5
    for weight in (memory.layers[0].input_weights[0], memory.layers[0].recurrent_weights[0]):
        largest = float(weight.detach().abs().max())
        assert 0.95 * bound < largest <= bound


def test_an_input_pyramid_enters_at_every_level() -> None:
    memory = _memory("0-2:1", "0-2:2", (3, 3))
    grids = tuple(_x(2, 1, 1, (3 << level,) * 2).requires_grad_() for level in range(3))
    h, _ = memory(Pyramid(0, grids))
    h[0][2].sum().backward()
    assert grids[0].grad is None or not bool(grids[0].grad.any())
    assert all(bool(grid.grad.any()) for grid in grids[1:])  # type: ignore[union-attr]
    (layer,) = memory.layers
    one_step = slow_neighbours({level: grid[0] for level, grid in enumerate(grids)}, 1)
    gates = slow_convolution(one_step, layer.input_weights[1]) + layer.biases[1].view(1, -1, 1, 1)
    i, _, g, o = gates.chunk(4, 1)
    expected = o.sigmoid() * (i.sigmoid() * g.tanh()).tanh()
    assert_close(h[0][1][0], expected, 1e-12)


def test_one_dimension_goes_from_1_to_16_cells_as_stories_need() -> None:
    memory = MultigridMemory(3, "0-1:2 0-2:2 0-3:2 0-4:2", (1,))
    h, state = memory(torch.randn(2, 1, 3, 1))
    assert [grid.shape[-1] for grid in h[-1]] == [1, 2, 4, 8, 16]
    assert state.cells == memory.cells == 2 * (3 + 7 + 15 + 31)


def test_printing_a_memory_draws_its_mesh() -> None:
    text = str(MultigridMemory(4, "0-1:4 0-2:8"))
    assert text.splitlines()[0] == "MultigridMemory on input 0:4"
    assert "3x3 6x6 12x12" in text
    assert "15,104" in text


def test_the_same_seed_makes_the_same_memory() -> None:
    def make() -> list[Tensor]:
        torch.manual_seed(5)
        return list(MultigridMemory(4, "0-1:4 0-2:8").parameters())

    assert all(torch.equal(a, b) for a, b in zip(make(), make(), strict=True))
