"""Readers: any number on one memory, at chosen steps, to any grid; they never write."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comparing import assert_close, shaken
from mgmem import MultigridMemory, MultigridReader, Pyramid, ReadWrite


@pytest.fixture
def memory() -> MultigridMemory:
    return MultigridMemory(4, "0-1:4 0-1:4 0-2:8")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 2, 4, 3, 3)


@pytest.mark.parametrize(
    ("tail", "shape"),
    [
        ("1-3:8 2-3:8 3:1", (1, 24, 24)),
        ("0-2:8 0-1:8 0:10", (10, 3, 3)),
        ("1:2", (2, 6, 6)),
    ],
)
def test_a_tail_leads_to_the_finest_the_coarsest_or_any_grid(
    memory: MultigridMemory, x: Tensor, tail: str, shape: tuple[int, ...]
) -> None:
    reader = memory.reader(2, tail=tail)
    query = torch.randn(5, 2, 2, 3, 3)
    assert reader(query, memory(x)[0]).shape == (5, 2, *shape)
    assert reader.output_shape == shape


def test_a_tail_may_end_on_several_levels(memory: MultigridMemory, x: Tensor) -> None:
    answer = memory.reader(4, tail="1-3:2")(x, memory(x)[0])
    assert isinstance(answer, Pyramid)
    assert [tuple(grid.shape) for grid in answer] == [(5, 2, 2, n, n) for n in (6, 12, 24)]


def test_several_readers_share_one_memory_and_each_trains_it(
    memory: MultigridMemory, x: Tensor
) -> None:
    readers = [memory.reader(4, tail="2:1"), memory.reader(2, tail="0:3")]
    queries = [torch.randn(5, 2, 4, 3, 3), torch.randn(5, 2, 2, 3, 3)]
    h, _ = memory(x)
    parameters = list(memory.parameters())
    answers = [reader(query, h) for reader, query in zip(readers, queries, strict=True)]
    alone = [
        torch.autograd.grad(
            answer.sum(), parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for answer in answers
    ]
    together = answers[0].sum() + answers[1].sum()
    both = torch.autograd.grad(together, parameters, allow_unused=True, materialize_grads=True)
    for one, other, sum_ in zip(*alone, both, strict=True):
        assert_close(one + other, sum_, 1e-4)


def test_reading_never_writes(memory: MultigridMemory, x: Tensor) -> None:
    reader = memory.reader(4, tail="2:1")
    h, state = memory(x)
    kept = [grid.clone() for layer in h for grid in layer]
    kept += [tensor.clone() for tensor in state.tensors().values()]
    first = reader(x, h)
    reader(-x, h)
    now = [grid for layer in h for grid in layer] + list(state.tensors().values())
    assert all(torch.equal(a, b) for a, b in zip(kept, now, strict=True))
    assert torch.equal(reader(x, h), first)
    assert not any(p is q for p in memory.parameters() for q in reader.parameters())


def test_reading_at_chosen_steps_equals_those_steps_of_reading_at_all(
    memory: MultigridMemory, x: Tensor
) -> None:
    reader = memory.reader(4, tail="2:1")
    h, _ = memory(x)
    everywhere = reader(x, h)
    times = torch.tensor([0, 3, 3, 4])
    assert_close(reader(x[times], h, times=times), everywhere[times], 1e-6)
    assert reader(x[:0], h, times=times[:0]).shape == (0, 2, 1, 12, 12)


def test_reading_after_a_step_equals_reading_the_sequence(
    memory: MultigridMemory, x: Tensor
) -> None:
    reader = memory.reader(4, tail="2:1")
    h, _ = memory(x)
    expected = reader(x, h)
    state = None
    for t in range(5):
        now, state = memory.step(x[t], state)
        assert_close(reader(x[t], now), expected[t], 1e-5)


def test_every_layer_of_the_memory_is_seen(memory: MultigridMemory, x: Tensor) -> None:
    reader = memory.reader(4, tail="0-2:4 0-2:4 0-2:4")
    h = [layer.map(lambda grid: torch.randn_like(grid).requires_grad_()) for layer in memory(x)[0]]
    answer = reader(x, h)
    sum(grid.sum() for grid in answer).backward()
    assert all(bool(grid.grad.any()) for layer in h for grid in layer)


def test_residuals_of_the_reader_follow_the_reference() -> None:
    """Layer l adds what layer l-2 handed on after joining the memory, if it has the channels."""
    memory = MultigridMemory(1, "0:2 0:2 0:4 0:4 0:4", (2, 2))
    reader = shaken(memory.reader(1, tail="0:3 0:3 0:3 0:3 0:3"), 0.1)
    assert isinstance(reader, MultigridReader)
    h, _ = memory(torch.randn(1, 3, 1, 2, 2))
    query = torch.randn(1, 3, 1, 2, 2)
    y = Pyramid(0, (query[0],))
    handed = []
    for number, layer in enumerate(reader.layers, 1):
        y = layer(y)
        # 3: 2+2 channels fit its 4. 5: 4+4 do not fit 4. 7: 4+4 do not fit 3. 9: 3 fit 3.
        if number in (3, 9):
            y = Pyramid(0, (y[0] + handed[number - 3][0],))
        if number <= 5:
            y = Pyramid(0, (torch.cat([y[0], h[number - 1][0][0]], 1),))
        handed.append(y)
    assert_close(reader(query, h)[0], y[0], 1e-5)


def test_a_reader_has_the_dtype_of_its_memory() -> None:
    memory = MultigridMemory(2, "0-1:2", dtype=torch.float64)
    x = torch.randn(2, 1, 2, 3, 3, dtype=torch.float64)
    assert memory.reader(2, tail="0:1")(x, memory(x)[0]).dtype == torch.float64


def test_memory_and_readers_as_one_model(memory: MultigridMemory, x: Tensor) -> None:
    readers = [memory.reader(4, tail="2:1"), memory.reader(2, tail="0:3")]
    heads = [torch.nn.Identity(), torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.Linear(27, 7))]
    model = ReadWrite(memory, readers, heads)
    times = torch.tensor([1, 4])
    queries = (torch.randn(2, 2, 4, 3, 3), torch.randn(2, 2, 2, 3, 3))
    reset = torch.zeros(5, 2, dtype=torch.bool)
    reset[2, 1] = True
    (grid, vector), state = model(x, queries=queries, times=times, reset=reset)
    h, expected_state = memory(x, reset=reset)
    assert_close(grid, readers[0](queries[0], h, times=times), 1e-6)
    assert_close(vector, heads[1](readers[1](queries[1], h, times=times)), 1e-6)
    for name, tensor in expected_state.tensors().items():
        assert torch.equal(state.tensors()[name], tensor)
    again = model.state_from_tensors(state.tensors())
    assert again.tensors().keys() == state.tensors().keys()
    assert model.initial_state(3).batch == 3
    assert model.cells == memory.cells


def test_images_are_resized_to_every_level_of_the_input() -> None:
    memory = MultigridMemory("0-1:1", "0-1:2")
    model = ReadWrite(memory, [memory.reader("0-1:1", tail="0:1")], fit="resize")
    image = torch.arange(144.0).view(1, 1, 1, 12, 12)
    (answer,), _ = model(image, queries=(image,), times=torch.tensor([0]))
    pyramid = Pyramid(0, (image[..., ::4, ::4], image[..., ::2, ::2]))
    h, _ = memory(pyramid)
    assert_close(answer, model.readers[0](pyramid, h), 1e-6)
