"""Kernels take nothing on trust: what is done to a network is computed right, or refused."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from small import networks, run, x
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from mgmem import MultigridCNN, MultigridMemory, Pyramid, UsageError, backend
from mgmem.nn import MultigridConvLSTM, MultigridReader
from mgmem.nn.state import LayerState
from mgmem.ops import native
from mgmem.spec import as_layer

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")


def assert_native_is_right(memory: MultigridMemory, reader: MultigridReader) -> None:
    for learning in (False, True):
        expected = run(memory, reader, "reference", learning)
        for got, right in zip(run(memory, reader, "auto", learning), expected, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


def assert_refused(call: Callable[[], Any], *parts: str) -> None:
    pattern = "(?s)" + "".join(f"(?=.*{part})" for part in parts)
    for learning in (False, True):
        with torch.set_grad_enabled(learning), pytest.raises(UsageError, match=pattern):
            call()


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


# What may be done to parameters.


@pytest.mark.parametrize("index", ["0", "1"])
def test_parametrised_weights_are_computed_as_parametrised(index: str) -> None:
    memory, reader = networks()
    run(memory, reader, "auto", False)
    for group in (memory.layers[1].input_weights, reader.layers[1].weights):
        parametrize.register_parametrization(group, index, Doubled())
    assert_native_is_right(memory, reader)


def test_pruned_weights_stay_pruned_after_an_update() -> None:
    memory, reader = networks()
    pruned = memory.layers[1].input_weights
    prune.l1_unstructured(pruned, "0", amount=0.5)
    prune.l1_unstructured(reader.layers[0].weights, "1", amount=0.5)
    assert_native_is_right(memory, reader)
    optimizer = torch.optim.SGD(memory.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        sum(grid.sum() for grid in memory(x())[0][-1]).backward()  # type: ignore[union-attr]
        optimizer.step()
    mask = getattr(pruned, "0_mask")
    assert not bool(getattr(pruned, "0_orig").grad[mask == 0].any())
    assert_native_is_right(memory, reader)


def test_a_parametrisation_taken_away_again_leaves_the_levels_in_order() -> None:
    memory, reader = networks()
    before = run(memory, reader, "reference", True)
    weights, biases = memory.layers[1].input_weights, reader.layers[1].biases
    for group in (weights, biases):
        parametrize.register_parametrization(group, "0", nn.Identity())
        parametrize.remove_parametrizations(group, "0")
        assert list(group._parameters) == ["1", "0"]
    for way, learning in product(("reference", "scan", "native"), (False, True)):
        for got, right in zip(run(memory, reader, way, learning), before, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)


def test_a_layer_of_another_dtype_is_refused() -> None:
    memory, reader = networks()
    h, state = memory(x())
    assert_refused(lambda: networks()[1].half()(x(), h), "torch.float16", "torch.float32")
    reader.layers[1].half()
    assert_refused(lambda: reader(x(), h), "torch.float16", "torch.float32", "convert")
    memory.layers[1].half()
    assert_refused(lambda: memory(x()), "torch.float16", "torch.float32")
    assert_refused(lambda: memory.step(x()[0], state), "torch.float16", "torch.float32")


def test_a_layer_on_another_device_is_refused() -> None:
    memory, reader = networks()
    h, state = memory(x())
    reader.layers[1].to("meta")
    assert_refused(lambda: reader(x(), h), "meta", "cpu")
    assert_refused(lambda: memory(x(), state.to("meta")), "meta", "cpu")
    memory.layers[1].to("meta")
    assert_refused(lambda: memory(x()), "meta", "cpu")


@pytest.mark.parametrize("before", [False, True])
def test_a_weight_of_another_shape_is_refused(before: bool) -> None:
    for group, shape, expected in (
        ("input_weights", (12, 3, 3, 3), r"\(12, 6, 3, 3\)"),
        ("recurrent_weights", (12, 2, 3, 3), r"\(12, 3, 3, 3\)"),
        ("biases", (11,), r"\(12,\)"),
    ):
        memory, _ = networks()
        if before:  # a recording knows the right one
            with torch.no_grad():
                memory.step(x()[0], memory.initial_state(2))
        getattr(memory.layers[1], group)[1] = nn.Parameter(torch.zeros(shape))
        given = str(shape).replace("(", r"\(").replace(")", r"\)")
        assert_refused(lambda m=memory: m(x()), "level 1", given, expected)  # type: ignore[misc]
        step = lambda m=memory: m.step(x()[0], m.initial_state(2))  # noqa: E731
        assert_refused(step, "level 1", given, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.transpose(-1, -2),
        lambda data: torch._neg_view(data),
        lambda data: data.flip(0),
        lambda data: data.expand(3, *data.shape)[1],
    ],
)
def test_data_replaced_after_a_recorded_step_is_seen(change: Callable[[Tensor], Tensor]) -> None:
    memory, reader = networks()
    run(memory, reader, "auto", False)
    for weight in (memory.layers[0].input_weights[0], reader.layers[1].weights[0]):
        weight.data = change(weight.data)
    assert_native_is_right(memory, reader)


def test_a_shorter_view_put_in_the_place_of_a_recorded_weight_is_refused() -> None:
    memory, reader = networks()
    run(memory, reader, "auto", False)
    bias = memory.layers[2].biases[0]
    bias.data = bias.data[:4]
    assert_refused(lambda: run(memory, reader, "auto", False), r"\(4,\)", r"\(16,\)")


# What may be given.


def test_levels_of_different_batch_sizes_are_refused() -> None:
    network = MultigridCNN("0-1:2", "0-1:3 0:1")
    grids = (torch.randn(4, 2, 3, 3), torch.randn(1, 2, 6, 6))
    assert_refused(lambda: network(Pyramid(0, grids)), r"\(1, 2, 6, 6\)", r"\(4, 2, 6, 6\)")


def test_a_layer_refuses_a_state_of_another_size() -> None:
    layer = MultigridConvLSTM(as_layer(2), as_layer("0-1:3"), (50, 50))
    small = MultigridConvLSTM(as_layer(2), as_layer("0-1:3"), (3, 3)).initial_state(2)
    grids = Pyramid(0, (torch.randn(2, 2, 2, 50, 50),))
    assert_refused(lambda: layer(grids, small), r"\(2, 3, 3, 3\)", r"\(2, 3, 50, 50\)")
    missing = LayerState(small.h, Pyramid(0, small.c.grids[:1]))
    assert_refused(lambda: layer(grids, missing), "2 levels and 1 of c")


@pytest.mark.parametrize(
    ("reset", "part"),
    [
        (torch.zeros(1, 2, dtype=torch.bool), r"\(1, 2\)"),
        (torch.zeros(2, 1, dtype=torch.bool), r"\(2, 1\)"),
        (torch.zeros(2, 2, dtype=torch.uint8), "torch.uint8"),
    ],
)
def test_short_or_odd_flags_are_refused(reset: Tensor, part: str) -> None:
    layer = MultigridConvLSTM(as_layer(2), as_layer("0-1:3"), (3, 3))
    grids, state = Pyramid(0, (x(),)), layer.initial_state(2)
    assert_refused(lambda: layer(grids, state, reset), part)
    assert_refused(lambda: layer(grids, state, None, reset), part)


def test_negative_views_are_read_as_negative() -> None:
    memory, reader = networks()
    inputs = torch.complex(x(1), -x(1)).conj().imag
    assert inputs.is_neg()
    state = memory.initial_state(2).map(lambda t: torch._neg_view(torch.randn_like(t)))
    for learning in (False, True):
        with torch.set_grad_enabled(learning):
            h, after = memory(inputs, state)
            right, right_after = memory(x(1), state.map(torch.resolve_neg))
            torch.testing.assert_close(reader(inputs, h), reader(x(1), right))
        for got, expected in zip(
            after.tensors().values(), right_after.tensors().values(), strict=True
        ):
            torch.testing.assert_close(got, expected)


def test_a_gradient_with_the_negative_bit_is_read_as_negative() -> None:
    network = MultigridCNN(2, "0-1:3 0:1")
    inputs = x()[0]
    outputs = network(inputs).finest
    pull = torch.randn_like(outputs)
    weights = list(network.parameters())
    right = torch.autograd.grad(outputs, weights, -pull, retain_graph=True)
    for got, expected in zip(
        torch.autograd.grad(outputs, weights, torch._neg_view(pull)), right, strict=True
    ):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("base", [(3, 3), (4,)])
def test_infinities_and_nan_come_out_as_in_the_reference(
    value: float, base: tuple[int, ...]
) -> None:
    network = MultigridCNN("0-1:2", "0-2:3 0-1:3 0-2:2", base)
    memory = MultigridMemory("0-1:2", "0-2:3 0-1:3", base)
    grids = tuple(torch.randn(1, 2, 2, *(side << level for side in base)) for level in (0, 1))
    for touched in (0, 1):
        spoiled = [grid.clone() for grid in grids]
        spoiled[touched][0, 1, 0, 1] = value
        inputs = Pyramid(0, tuple(spoiled))
        for learning in (False, True):
            results: dict[str, list[Tensor]] = {}
            for way in ("reference", "native"):
                with backend(way), torch.set_grad_enabled(learning):
                    state = memory.initial_state(2)
                    answer = network(inputs.map(lambda grid: grid[0]))
                    results[way] = [*answer, *memory(inputs, state)[1].tensors().values()]
            for got, expected in zip(results["native"], results["reference"], strict=True):
                torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-4, atol=1e-5)
    assert any(not bool(t.isfinite().all()) for t in results["reference"])


# Threads and memory.


def test_a_backend_chosen_in_one_thread_is_not_chosen_in_another() -> None:
    from mgmem.ops import chosen_backend

    inside, done = threading.Event(), threading.Event()
    seen: list[str] = []

    def choose() -> None:
        with backend("reference"):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=choose)
    before = chosen_backend()
    thread.start()
    inside.wait(10)
    seen.append(chosen_backend())
    with backend("scan"):
        done.set()
        thread.join()
        seen.append(chosen_backend())
    assert [*seen, chosen_backend()] == [before, "scan", before]


@pytest.mark.parametrize("way", ["native", "scan", "reference"])
def test_parameters_that_the_loss_does_not_reach_have_no_gradient(way: str) -> None:
    memory, _ = networks()
    with backend(way):
        h, _ = memory(x())
        network = MultigridCNN("0-1:3", "0-1:2 0-1:2")
        flat = h[1].map(lambda grid: grid.flatten(0, 1))
        outputs = network(flat)
        outputs[1].sum().backward()
    reached = {name for name, p in memory.named_parameters() if p.grad is not None}
    expected = {
        name for name, _ in memory.named_parameters() if name[:8] in ("layers.0", "layers.1")
    }
    assert reached == expected
    missing = {name for name, p in network.named_parameters() if p.grad is None}
    assert missing == {"layers.1.weights.0", "layers.1.biases.0"}
    with backend(way):
        memory.zero_grad()
        memory(x())[1].layers[1].c[0].sum().backward()
    missing = {name for name, p in memory.named_parameters() if p.grad is None}
    second = {f"layers.1.{kind}.1" for kind in ("input_weights", "recurrent_weights", "biases")}
    assert {name for name in missing if name.startswith("layers.1")} == second
    assert not any(name.startswith("layers.0") for name in missing)


def test_out_of_memory_is_a_memory_error() -> None:
    code = """
import os, resource, torch
from mgmem.ops import native
from mgmem.pyramid import Pyramid
def run(threads, side):
    x = Pyramid(0, (torch.ones(threads, 1, side, side),))
    kernel, bias = (torch.ones(4, 1, 3, 3),), (torch.zeros(4),)
    weights = native.LSTMWeights(kernel, kernel, bias, None)
    return lambda: native.lstm_layer(x.map(lambda grid: grid[None]), x, x, weights)
@torch.no_grad()
def end(threads):
    torch.set_num_threads(threads)
    run(threads, 64)()
    call = run(threads, 3000)
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    outputs = 3 * threads * 3000 * 3000 * 4
    limit = size + outputs + (48 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        call()
    except MemoryError as error:
        print("a clear end:", error, flush=True)
for threads in (1, 2, 3):  # each in a process of its own, which has its own limit
    child = os.fork()
    if child == 0:
        end(threads)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a clear end: the native kernels found no memory") == 3
