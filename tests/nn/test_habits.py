"""What PyTorch users are used to is taken where its meaning is clear, else refused."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves, tree_map

from comparing import shaken
from mgmem import (
    EncoderDecoder,
    LayerSpec,
    LayerState,
    MemoryState,
    MultigridCNN,
    MultigridMemory,
    MultigridReader,
    Pyramid,
    ReadWrite,
    UsageError,
    backend,
)
from mgmem.nn.recording import _recordings
from mgmem.ops import native

needs_kernels = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")
MESH = "0-1:3 0-1:3 0-2:4"
LENGTHS = [2, 5, 3]


@pytest.fixture
def memory() -> MultigridMemory:
    return MultigridMemory(2, MESH)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 3, 2, 3, 3)


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(tree_leaves(one), tree_leaves(other), rtol=1e-5, atol=1e-6)


# Sequences.


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_lengths_and_resets_as_lists_arrays_or_tensors(
    memory: MultigridMemory, x: Tensor, kind: Any
) -> None:
    flags = torch.rand(5, 3) < 0.3
    expected = memory(x, lengths=torch.tensor(LENGTHS), reset=flags)
    reset = kind(flags.tolist())
    same(memory(x, lengths=kind(LENGTHS), reset=reset), expected)


@pytest.mark.parametrize("ordered", [False, True])
def test_packed_in_packed_out(memory: MultigridMemory, x: Tensor, ordered: bool) -> None:
    lengths = sorted(LENGTHS, reverse=True) if ordered else LENGTHS
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=ordered)
    h, state = memory(packed)
    padded, expected = memory(x, lengths=lengths)
    assert state == expected
    for layer, right in zip(h, padded, strict=True):
        for grid, right_grid in zip(layer, right, strict=True):
            assert isinstance(grid, PackedSequence)
            unpacked, found = pad_packed_sequence(grid)
            assert found.tolist() == lengths
            assert torch.equal(unpacked, right_grid)
    for tail in ("0:2", "0-1:2"):
        reader = memory.reader(tail=tail)
        answer = tree_leaves(reader(packed, h))
        right_answer = reader(x, padded)
        lists = right_answer if isinstance(right_answer, Pyramid) else [right_answer]
        alive = torch.arange(5)[:, None] < torch.tensor(lengths)
        answers = [tensor for tensor in answer if isinstance(tensor, Tensor) and tensor.dim() == 4]
        for got, right_grid in zip(answers, lists, strict=True):
            assert got.shape[0] == sum(lengths)
            torch.testing.assert_close(got.sum(), right_grid[alive].sum(), rtol=1e-3, atol=1e-3)


def test_what_is_packed_in_another_way_is_refused(memory: MultigridMemory, x: Tensor) -> None:
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    reader = memory.reader(tail="0:1")
    with pytest.raises(UsageError, match="packed in the same way"):
        reader(packed, memory(x)[0])
    with pytest.raises(UsageError, match="lengths with a PackedSequence"):
        memory(packed, lengths=LENGTHS)
    with pytest.raises(UsageError, match="pad_packed_sequence"):
        MultigridCNN(2, "0:1")(packed)


def test_batch_first_goes_in_and_comes_out(x: Tensor) -> None:
    torch.manual_seed(0)
    usual = MultigridMemory(2, MESH)
    turned = MultigridMemory(2, MESH, batch_first=True)
    turned.load_state_dict(usual.state_dict())
    reset, start = torch.rand(5, 3) < 0.3, usual.initial_state(3).map(torch.randn_like)
    h, state = usual(x, start, reset=reset, lengths=LENGTHS)
    other, other_state = turned(x.mT.transpose(0, 1).mT, start, reset=reset.T, lengths=LENGTHS)
    assert other_state == state
    same([layer.map(lambda g: g.transpose(0, 1)) for layer in other], list(h))
    same(
        turned(x.numpy().swapaxes(0, 1), start, reset=reset.T.tolist())[1],
        usual(x, start, reset=reset)[1],
    )
    reader = turned.reader(tail="0:1")
    times = torch.tensor([1, 4])
    answer = reader(x[times].transpose(0, 1), other, times)
    same(answer.transpose(0, 1), reader(x[times], [layer.map(lambda g: g[times]) for layer in h]))
    for learning in (False, True):
        with torch.set_grad_enabled(learning):
            same(
                turned.step(x[0], start, reset=[True, False, False]),
                usual.step(x[0], start, reset=[True, False, False]),
            )
    with pytest.raises(UsageError, match="time, batch"):
        ReadWrite(turned, [reader])


def test_arrays_are_inputs(memory: MultigridMemory, x: Tensor) -> None:
    reader = memory.reader(tail="0:1")
    h, state = memory(x)
    wide = x.numpy().astype(np.float64)
    wide.flags.writeable = False
    same(memory(wide), (h, state))
    same(memory(wide[:, ::-1]), memory(x.flip(1)))
    same(memory.step(wide[0], state), memory.step(x[0], state))
    same(reader(wide, h), reader(x, h))
    same(MultigridCNN(2, "0:1").double()(wide[0]).finest.dtype == torch.float64, True)
    with pytest.raises(UsageError, match=r"int64.*float32"):
        memory(np.zeros((5, 3, 2, 3, 3), dtype=np.int64))
    with pytest.raises(UsageError, match="type list: give a tensor, an array or a Pyramid"):
        memory(list(x))  # type: ignore[arg-type]


def test_states_as_an_lstm_has_them(memory: MultigridMemory, x: Tensor) -> None:
    _, state = memory(x)
    expected = memory(x, state)
    layers = state.layers
    for given in (
        layers,
        list(layers),
        (tuple(layer.h for layer in layers), tuple(layer.c for layer in layers)),
        ([layer.h for layer in layers], [layer.c for layer in layers]),
    ):
        same(memory(x, given), expected)
    single = MultigridMemory(2, "0-1:3")
    _, one = single(x)
    same(single(x, (one.layers[0].h, one.layers[0].c)), single(x, one))
    tensors = torch.zeros(3, 3, 4), torch.zeros(3, 3, 4)
    for wrong in (tensors, tensors[0], layers[:2] + (None,), {"h": 1}):
        with pytest.raises(UsageError, match="give the MemoryState that an earlier call returned"):
            memory(x, wrong)  # type: ignore[arg-type]


def test_specifications_as_lists_and_bases_in_full() -> None:
    expected = MultigridMemory(2, "0-1:3 0-2:4").spec
    assert MultigridMemory(2, ["0-1:3", "0-2:4"]).spec == expected
    assert MultigridMemory(2, [LayerSpec(0, 1, 3), "0-2:4"]).spec == expected
    for wrong in (7, [(0, 1, 3)], None):
        with pytest.raises(UsageError, match='write text such as "0-1:4 0-2:8"'):
            MultigridMemory(2, wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"base 3: write \(3,\) for a row or \(3, 3\)"):
        MultigridMemory(2, "0:1", base=3)  # type: ignore[arg-type]


def test_one_tensor_of_queries_is_a_list_of_one(memory: MultigridMemory, x: Tensor) -> None:
    model = ReadWrite(memory, [memory.reader(tail="0:1")])
    times = torch.arange(5)
    same(model(x, queries=x, times=times), model(x, queries=[x], times=times))
    one = x[:1]
    same(model(x, queries=one, times=times[:1]), model(x, queries=[one], times=times[:1]))
    pair = EncoderDecoder(2, MESH, "0:1")
    same(pair(x, queries=x), pair(x, queries=[x]))


@pytest.mark.parametrize(
    "function",
    [MultigridMemory, MultigridMemory.reader, MultigridReader, MultigridCNN, EncoderDecoder],
)
def test_every_keyword_is_spelled_out(function: Any) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


# Steps.


@needs_kernels
@pytest.mark.parametrize("batch", [1, 3, 9])
def test_a_step_with_a_reset_stays_recorded(memory: MultigridMemory, batch: int) -> None:
    state = memory.initial_state(batch).map(torch.randn_like)
    x, reset = torch.randn(batch, 2, 3, 3), torch.arange(batch) % 2 == 0
    with torch.no_grad():
        got = [
            memory.step(x, state, reset=reset),
            memory.step(x, state),
            memory.step(x, state, reset=~reset),
        ]
        recordings = _recordings[memory]
        assert len(recordings) == 2
        with backend("reference"):
            same(
                got,
                [
                    memory.step(x, state, reset=reset),
                    memory.step(x, state),
                    memory.step(x, state, reset=~reset),
                ],
            )
    assert len(recordings) == 2
    same(got[0], memory.step(x, state, reset=reset))
    same(got[0], memory.step(x, state, reset=reset.tolist()))


def test_a_reset_of_one_step_is_refused_if_it_does_not_fit(memory: MultigridMemory) -> None:
    x, state = torch.randn(2, 2, 3, 3), memory.initial_state(2)
    for learning in (False, True):
        with torch.set_grad_enabled(learning):
            for wrong in (torch.tensor([True]), torch.tensor([1, 0]), [1, 0]):
                with pytest.raises(UsageError, match=r"expected torch\.bool of shape"):
                    memory.step(x, state, reset=wrong)


def test_decoding_step_by_step_is_decoding_at_once() -> None:
    head = nn.Sequential(nn.Flatten(2), nn.Linear(18, 5))
    for pair, shape in (
        (EncoderDecoder(2, MESH, "0-1:3 0-1:3 0:2"), (3, 3)),
        (EncoderDecoder(2, MESH, "0:2", head=head, fit="resize"), (12, 12)),
    ):
        x, queries = torch.randn(4, 3, 2, *shape), torch.randn(5, 3, 2, *shape)
        for learning in (False, True):
            with torch.set_grad_enabled(learning):
                (expected,), state = pair(x, queries=queries)
                outputs = []
                for query in queries:
                    output, state = pair.step(query, state)
                    outputs.append(output)
            same(torch.stack(outputs), expected)


# Learning.


class _Sum(nn.Module):
    def forward(self, answer: Pyramid) -> Tensor:
        return torch.stack([grid.sum() for grid in answer]).sum()


def test_a_frozen_memory_learns_nothing_even_in_training_mode(x: Tensor) -> None:
    memory = MultigridMemory(2, MESH, norm=True)
    model = ReadWrite(memory, [memory.reader(tail="0-2:1 0-1:1", norm=True)], [_Sum()])
    assert memory.freeze() is memory
    model.train()
    before = copy.deepcopy(memory.state_dict())
    (answer,), _ = model(x, queries=x, times=torch.arange(5))
    answer.sum().backward()
    assert model.training
    assert model.readers.training
    assert all(p.grad is None for p in memory.parameters())
    assert all(p.grad is not None for p in model.readers.parameters())
    assert all(torch.equal(before[name], now) for name, now in memory.state_dict().items())
    memory.freeze(False)
    model.train()
    model(x, queries=x, times=torch.arange(5))
    assert all(p.requires_grad for p in memory.parameters())
    assert not all(torch.equal(before[name], now) for name, now in memory.state_dict().items())


@pytest.mark.parametrize("kind", ["memory", "reader", "pair"])
def test_reset_parameters_starts_as_a_new_network_does(kind: str) -> None:
    def make() -> nn.Module:
        torch.manual_seed(4)
        memory = MultigridMemory(2, MESH, peephole="channel", norm=True, forget_bias=2.0)
        if kind == "pair":
            return EncoderDecoder(2, MESH, "0:1", norm=True, peephole="cell")
        return memory if kind == "memory" else memory.reader(tail="0:1", norm=True)

    new, used = make(), shaken(make())
    torch.manual_seed(4)
    if kind == "reader":
        MultigridMemory(2, MESH, peephole="channel", norm=True)
    if kind == "pair":
        MultigridMemory(2, MESH, peephole="channel", norm=True)
    used.reset_parameters()  # type: ignore[operator]
    for name, tensor in new.state_dict().items():
        assert torch.equal(used.state_dict()[name], tensor), name


# Values.


def test_states_and_pyramids_are_values(memory: MultigridMemory, x: Tensor) -> None:
    h, state = memory(x)
    assert h[-1][-1] is h[-1].finest
    for value in (state, h[-1]):
        twin = value.clone()
        assert twin == value
        assert (twin != value) is False
        assert tree_leaves(twin)[0].data_ptr() != tree_leaves(value)[0].data_ptr()
        assert value.cpu() == value.detach() == value
        assert value.map(torch.neg) != value
        assert value.to(torch.float64) != value
        assert value != "something else"
        assert len(repr(value)) < 150
        with pytest.raises(TypeError, match="hash"):
            hash(value)
    assert state.select([0]) != state
    assert repr(state) == "MemoryState(3 layers, 1,026 cells, batch 3, torch.float32)"
    assert repr(h[1]) == "Pyramid(0: (5, 3, 3, 3, 3), 1: (5, 3, 3, 6, 6))"


def test_torch_save_and_load_without_running_code(
    memory: MultigridMemory, x: Tensor, tmp_path: Path
) -> None:
    h, state = memory(x)
    path = tmp_path / "both.pt"
    torch.save({"h": h, "state": state.detach()}, path)
    loaded = torch.load(path, weights_only=True)
    assert isinstance(loaded["state"], MemoryState)
    assert isinstance(loaded["state"].layers[0], LayerState)
    assert loaded["state"] == state
    assert list(loaded["h"]) == list(h)


def test_trees(memory: MultigridMemory, x: Tensor) -> None:
    h, state = memory(x)
    assert tree_map(lambda t: t, state) == state
    doubled = tree_map(lambda t: 2 * t, (h, state))
    assert doubled[0][2] == h[2].map(lambda t: 2 * t)
    assert doubled[0][2].levels == h[2].levels
    assert len(tree_leaves(state)) == len(state.tensors())


def test_transforms_map_over_states(memory: MultigridMemory) -> None:
    states = memory.initial_state(2).map(lambda t: torch.randn(4, *t.shape))
    x = torch.randn(4, 3, 2, 2, 3, 3)
    h, after = torch.func.vmap(memory)(x, states)
    for index in range(4):
        one = states.map(lambda t, index=index: t[index])  # type: ignore[misc]
        expected_h, expected = memory(x[index], one)
        same(after.map(lambda t, index=index: t[index]), expected)  # type: ignore[misc]
        same(h[-1].finest[index], expected_h[-1].finest)

    def loss(state: MemoryState) -> Tensor:
        return memory(x[0], state)[0][-1].finest.sum()

    gradient = torch.func.grad(loss)(memory.initial_state(2))
    assert isinstance(gradient, MemoryState)
    assert bool(gradient.layers[-1].c.finest.any())


@pytest.mark.parametrize("with_state", [False, True])
def test_torch_export_of_a_memory(
    memory: MultigridMemory, x: Tensor, with_state: bool, tmp_path: Path
) -> None:
    x = x[:2]  # a program has all steps one after another
    arguments = (x, memory.initial_state(3)) if with_state else (x,)
    program = torch.export.export(memory, arguments, strict=False)
    h, state = program.module()(*arguments)
    assert isinstance(state, MemoryState)
    same((h, state), memory(*arguments))
    torch.export.save(program, tmp_path / "memory.pt2")
    same(torch.export.load(tmp_path / "memory.pt2").module()(*arguments), (h, state))
