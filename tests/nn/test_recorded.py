"""Small inference runs as a recording, which nobody can tell from going layer by layer."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn import MemoryState, MultigridCNN, MultigridMemory, MultigridReader, ReadWrite
from mgmem.nn.recording import _recordings
from mgmem.ops import native
from mgmem.pyramid import Pyramid

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")

MESH = "0-1:3 0-1:4 0-2:5 0-2:5 1-2:7"
TAIL = "1-2:6 2:1"


def recordings(network: nn.Module) -> int:
    return sum(found is not None for found in _recordings.get(network, {}).values())


def make(mesh: str = MESH, tail: str = TAIL, **options: Any) -> ReadWrite:
    torch.manual_seed(0)
    memory = MultigridMemory(2, mesh, **options)
    return ReadWrite(memory, [memory.reader(tail=tail)]).eval()


def flat(results: Any) -> list[Tensor]:
    """All tensors of nested tuples, pyramids and states, in order."""
    if isinstance(results, Tensor):
        return [results]
    return [tensor for part in results for tensor in flat(part)]


def assert_same(left: Any, right: Any) -> None:
    left, right = flat(left), flat(right)
    assert len(left) == len(right)
    for one, two in zip(left, right, strict=True):
        torch.testing.assert_close(one, two.detach(), rtol=1e-6, atol=1e-6)


def walk(model: ReadWrite, steps: Tensor, queries: Tensor) -> tuple[list[Tensor], MemoryState]:
    """Step by step: (time, batch, ...) to one answer per step, and the last state."""
    state, answers = model.initial_state(steps.shape[1]), []
    for x, query in zip(steps.split(1), queries.split(1), strict=True):
        now = torch.zeros(1, dtype=torch.int64)
        (answer,), state = model(x, state, queries=(query,), times=now)
        answers.append(answer)
    return answers, state


@pytest.mark.parametrize("batch", [1, 2, 5, 33])
@pytest.mark.parametrize("residual", [True, False])
def test_steps_equal_those_layer_by_layer(batch: int, residual: bool) -> None:
    model = make(residual=residual)
    steps, queries = torch.randn(2, 4, batch, 2, 3, 3)
    with torch.no_grad():
        recorded = walk(model, steps, queries)
    assert recordings(model.memory) == recordings(model.readers[0]) == 1
    assert_same(recorded, walk(model, steps, queries))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("input", "base", "kernel"),
    [(2, (3,), 3), (1, (2, 3), 1), ("0-1:2", (4, 3), 5), (3, (3, 3), 3)],
)
def test_every_kind_of_grid(
    input: int | str, base: tuple[int, ...], kernel: int, threads: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(native.library, "threads", lambda: threads)
    memory = MultigridMemory(input, MESH, base, kernel=kernel)
    reader = memory.reader(tail="1-2:3")
    x = Pyramid(
        memory.input.lowest,
        tuple(
            torch.randn(1, 4, memory.input.channels, *(side << level for side in base))
            for level in memory.input.levels
        ),
    )
    state = memory.initial_state(4)
    with torch.inference_mode():
        h, after = memory(x, state)
        answer = reader(x, h)
    assert recordings(memory) == recordings(reader) == 1
    expected_h, expected_after = memory(x, state)
    assert_same((*h, after.layers), (*expected_h, expected_after.layers))
    assert_same(answer, reader(x, expected_h))


def test_a_whole_sequence_equals_its_steps() -> None:
    model = make()
    steps, queries = torch.randn(2, 5, 2, 2, 3, 3)
    with torch.no_grad():
        answers, state = walk(model, steps, queries)
        (whole,), last = model(steps, queries=(queries,), times=torch.arange(5))
    torch.testing.assert_close(torch.cat(answers), whole, rtol=1e-5, atol=1e-5)
    for one, two in zip(flat(state), flat(last), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_states_and_answers_never_change_afterwards() -> None:
    model = make()
    x, query = torch.randn(2, 1, 1, 2, 3, 3)
    state, seen, copies = model.initial_state(1), [], []
    with torch.inference_mode():
        for _ in range(5):
            answers, state = model(x, state, queries=(query,), times=torch.tensor([0]))
            seen.append((answers, state))
            copies.append([tensor.clone() for tensor in flat((answers, state))])
    for results, copied in zip(seen, copies, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(flat(results), copied, strict=True))


def test_changed_weights_are_seen() -> None:
    model = make()
    memory, reader = model.memory, model.readers[0]
    assert isinstance(reader, MultigridReader)
    steps, queries = torch.randn(2, 2, 1, 2, 3, 3)

    def double_in_place() -> None:
        for parameter in model.parameters():
            parameter.data.mul_(1.5)

    def replace_a_parameter() -> None:
        memory.layers[1].biases[0] = nn.Parameter(torch.randn(16))  # type: ignore[index]

    def load() -> None:
        model.load_state_dict({k: torch.randn_like(v) for k, v in model.state_dict().items()})

    def there_and_back() -> None:
        model.double().float()

    def another_layer() -> None:
        reader.layers[0] = copy.deepcopy(reader.layers[0])
        nn.init.ones_(reader.layers[0].weights[0])  # type: ignore[index]

    def without_relu() -> None:
        reader.layers[1].relu = False

    with torch.no_grad():
        before = walk(model, steps, queries)
    changes = (
        double_in_place, replace_a_parameter, load, there_and_back, another_layer, without_relu,
    )  # fmt: skip
    for change in changes:
        change()
        with torch.no_grad():
            after = walk(model, steps, queries)
        assert_same(after, walk(model, steps, queries))
    assert not torch.allclose(before[0][-1], after[0][-1])


def test_the_shape_of_a_query_may_change_from_call_to_call() -> None:
    model = make()
    reader, memory = model.readers[0], model.memory
    with torch.no_grad():
        h, _ = memory(torch.randn(6, 3, 2, 3, 3))
        for number in (1, 6, 2, 6):
            times = torch.arange(number)
            query = torch.randn(number, 3, 2, 3, 3)
            answer = reader(query, h, times=times)
            with torch.enable_grad():
                assert_same(answer, reader(query, h, times=times))
        last = [layer.map(lambda grid: grid[-1]) for layer in h]
        assert_same(reader(query[-1], last), answer[-1])


def test_grids_that_do_not_lie_in_one_piece() -> None:
    model = make()
    x, query = torch.randn(2, 1, 2, 3, 3, 2).movedim(-1, 3)
    with torch.no_grad():
        assert not x.is_contiguous()
        recorded = walk(model, x, query)
        state = recorded[1].select([1, 0]).map(lambda grid: grid.mT.contiguous().mT)
        turned = model.memory(x, state)
    assert_same(recorded, walk(model, x, query))
    assert_same(turned[1].layers, model.memory(x, state)[1].layers)


@pytest.mark.parametrize("options", [{"norm": True}, {"peephole": "cell"}, {"peephole": "channel"}])
def test_norms_and_peepholes_go_layer_by_layer(options: dict[str, Any]) -> None:
    model = make(**options)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    steps, queries = torch.randn(2, 2, 2, 2, 3, 3)
    with torch.no_grad():
        results = walk(model, steps, queries)
    assert recordings(model.memory) == 0
    assert_same(results, walk(model, steps, queries))


def test_hooks_are_called() -> None:
    model = make()
    steps, queries = torch.randn(2, 1, 1, 2, 3, 3)
    calls: list[nn.Module] = []
    reader, layer = model.readers[0], model.memory.layers[0]
    assert isinstance(reader, MultigridReader)
    with torch.no_grad():
        plain = walk(model, steps, queries)
        layer.register_forward_pre_hook(lambda module, _: calls.append(module))
        reader.layers[2].register_forward_hook(lambda module, *_: calls.append(module))
        assert_same(walk(model, steps, queries), plain)
    assert calls == [layer, reader.layers[2]]


def test_other_backends_and_autocast_are_respected() -> None:
    model = make()
    x, state = torch.randn(1, 1, 2, 3, 3), model.initial_state(1)
    with torch.no_grad(), ops.backend("scan"):
        model.memory(x, state)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model.memory(x, state)
    assert recordings(model.memory) == 0
    with torch.no_grad():
        h, _ = model.double().memory(x.double(), state.to(torch.float64))
    assert h[0].finest.dtype == torch.float64


def test_resets_and_lengths_are_respected() -> None:
    memory = make().memory
    x = torch.randn(1, 2, 2, 3, 3)
    with torch.no_grad():
        _, state = memory(x)
        _, fresh = memory(x, state, reset=torch.tensor([[True, False]]))
        _, kept = memory(x, state, lengths=torch.tensor([0, 1]))
        _, on = memory(x, state)
    assert_same(fresh.select([0]), state.select([0]))
    assert_same(kept.select([0]), state.select([0]))
    assert_same(fresh.select([1]), on.select([1]))


def test_errors_are_those_of_the_long_way() -> None:
    model = make()
    memory, reader = model.memory, model.readers[0]
    x = torch.randn(1, 1, 2, 3, 3)
    with torch.no_grad():
        h, state = memory(x, memory.initial_state(1))
        for wrong, message in (
            (torch.randn(1, 2, 2, 3, 3), "batch size 1"),
            (torch.randn(1, 1, 3, 3, 3), "built for"),
            (torch.randn(1, 2, 3, 3), "dimensions"),
            (x.double(), "dtype"),
        ):
            with pytest.raises(UsageError, match=message):
                memory(wrong, state)
        with pytest.raises(UsageError, match="dtype"):
            memory(x, state.to(torch.float64))
        with pytest.raises(UsageError, match="layers"):
            reader(x, h[:-1])
        with pytest.raises(UsageError, match="leading"):
            reader(torch.randn(2, 1, 2, 3, 3), h)
        careful = MultigridMemory(2, MESH, check_finite=True)
        with pytest.raises(UsageError, match="NaN"):
            careful(x * torch.nan, careful.initial_state(1))


def test_no_step_after_the_only_one_can_be_asked() -> None:
    model = make()
    x = torch.randn(1, 1, 2, 3, 3)
    with torch.no_grad(), pytest.raises(IndexError):
        model(x, queries=(x,), times=torch.tensor([1]))


def test_threads_do_not_disturb_each_other() -> None:
    model = make()
    cases = torch.randn(4, 2, 30, 1, 2, 3, 3)
    with torch.no_grad():
        expected = [walk(model, *case) for case in cases]
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        with torch.no_grad():
            results[number] = walk(model, *cases[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert_same(results[number], expected[number])


def test_a_network_can_be_copied_pickled_and_freed_after_use() -> None:
    network = MultigridCNN(2, "0-1:3 0-1:3 1:2")
    x = torch.randn(1, 2, 3, 3)
    with torch.no_grad():
        expected = network(x)
        assert recordings(network) == 1
        assert_same(copy.deepcopy(network)(x), expected)
        assert_same(pickle.loads(pickle.dumps(network))(x), expected)
    before = len(_recordings)
    del network
    gc.collect()
    assert len(_recordings) < before


def test_large_grids_and_many_shapes_are_not_kept() -> None:
    large, small = MultigridCNN(1, "0:8 0:8", (256, 256)), MultigridCNN(1, "0:2")
    with torch.no_grad():
        large(torch.randn(1, 1, 256, 256))
        for samples in range(1, 20):
            small(torch.randn(samples, 1, 3, 3))
    assert recordings(large) == 0
    assert 0 < recordings(small) <= 4


def test_the_default_dtype_does_not_matter() -> None:
    network = MultigridCNN(2, "0-1:3 1:2")
    x = torch.randn(1, 2, 3, 3)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert_same(network(x), network.double()(x.double()).map(Tensor.float))
    finally:
        torch.set_default_dtype(torch.float32)
