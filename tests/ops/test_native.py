"""The compiled kernels equal the reference: outputs, states and all gradients."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mgmem.ops import native, reference
from mgmem.ops.native import blocks, build, library
from mgmem.ops.reference import LSTMWeights
from mgmem.pyramid import Pyramid

needs_kernels = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")

Levels = tuple[int, int]


THREADS = [1, 2]


def use_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Threads of the kernels alone: PyTorch's own only slow the reference on grids this small."""
    monkeypatch.setattr(library, "threads", lambda: count)


class Maker:
    """Random grids and weights that want gradients, remembered in ``leaves``."""

    def __init__(self, base: Sequence[int], kernel: int, seed: int = 0) -> None:
        self.base, self.kernel = tuple(base), kernel
        self.generator = torch.Generator().manual_seed(seed)
        self.leaves: list[Tensor] = []

    def tensor(self, *shape: int, scale: float = 1.0) -> Tensor:
        values = scale * torch.randn(*shape, generator=self.generator)
        self.leaves.append(values.requires_grad_())
        return values

    def grids(self, levels: Levels, *leading: int) -> Pyramid:
        spaces = [tuple(side << j for side in self.base) for j in range(levels[0], levels[1] + 1)]
        return Pyramid(levels[0], tuple(self.tensor(*leading, *space) for space in spaces))

    def weights(self, channels: int, read: Sequence[int]) -> tuple[Tensor, ...]:
        taps = (self.kernel,) * len(self.base)
        area = self.kernel ** len(self.base)
        return tuple(self.tensor(channels, c, *taps, scale=(c * area) ** -0.5) for c in read)

    def biases(self, channels: int, count: int) -> tuple[Tensor, ...]:
        return tuple(self.tensor(channels) for _ in range(count))


def channels_read(source: Levels, target: Levels, channels: int) -> list[int]:
    exists = range(source[0], source[1] + 1)
    return [
        channels * sum(near in exists for near in (j - 1, j, j + 1))
        for j in range(target[0], target[1] + 1)
    ]


class Pulled:
    """What is expected of outputs, and of the gradients of random pulls on them."""

    def __init__(self, expected: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
        self.expected, self.leaves = expected, leaves
        self.pulls = [torch.randn_like(e) for e in expected]
        self.gradients = self._gradients(expected)

    def _gradients(self, outputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(outputs, self.leaves, self.pulls, allow_unused=True)

    def assert_equal(self, got: Sequence[Tensor]) -> None:
        assert [g.shape for g in got] == [e.shape for e in self.expected]
        for g, e in zip(got, self.expected, strict=True):
            assert_near(g, e)
        for ours, theirs in zip(self._gradients(got), self.gradients, strict=True):
            if theirs is None:
                assert ours is None
            else:
                assert ours is not None
                assert_near(ours, theirs)


def assert_equal_with_gradients(
    got: Sequence[Tensor], expected: Sequence[Tensor], leaves: Sequence[Tensor]
) -> None:
    Pulled(expected, leaves).assert_equal(got)


def assert_near(got: Tensor, expected: Tensor) -> None:
    if got.numel():
        worst = (got - expected).abs().max()
        assert worst <= 1e-4 * expected.abs().max() + 1e-7


def assert_numbers_do_not_depend_on_the_threads(
    make: Maker, arguments: Sequence[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for count in (1, 2, 3):
        use_threads(monkeypatch, count)
        results = flat(native.lstm_layer(*arguments))
        gradients = torch.autograd.grad(sum(r.square().sum() for r in results), make.leaves)
        runs.append([*results, *gradients])
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


def assert_only_wanted_gradients_are_made(base: Sequence[int], lowest: int) -> None:
    make = Maker(base, 3)
    levels = (lowest - 1, lowest + 1)
    inputs = make.grids(levels, 2, 16)
    weights, biases = make.weights(24, [48]), make.biases(24, 1)
    got = native.conv_layer(inputs, weights, biases, lowest, False)
    expected = reference.conv_layer(inputs, weights, biases, lowest, False)
    for wanted in ([inputs.grids[0]], [inputs.grids[2]], list(weights), list(biases)):
        seeds = [torch.ones_like(grid) for grid in expected]
        ours = torch.autograd.grad(got.grids, wanted, seeds, retain_graph=True)
        theirs = torch.autograd.grad(expected.grids, wanted, seeds, retain_graph=True)
        for a, b in zip(ours, theirs, strict=True):
            assert (a - b).abs().max() <= 1e-4 * b.abs().max()


# (levels below, levels of the layer): growing, equal, shrinking, only up, only down, with a level
# below that nobody reads.
REACHES = [((0, 0), (0, 1)), ((0, 2), (0, 2)), ((0, 3), (1, 2)), ((1, 1), (2, 2)), ((1, 1), (0, 0)),
           ((0, 3), (0, 0)), ((1, 2), (0, 3))]  # fmt: skip
# (channels below, channels, samples): even, odd, wider than one register block, many samples.
SIZES = [(4, 4, 5), (3, 5, 1), (2, 11, 4), (5, 3, 33)]


@needs_kernels
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize(("number", "base"), enumerate([(3, 3), (5, 3), (3,), (7,)]))
def test_conv_layers_equal_the_reference(
    number: int, base: tuple[int, ...], kernel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = itertools.product(REACHES, SIZES)
    for case, ((source, target), (below, channels, samples)) in enumerate(cases):
        relu = (case + number) % 2 == 0  # every case with it and without, on some base or other
        make = Maker(base, kernel)
        inputs = make.grids(source, samples, below)
        weights = make.weights(channels, channels_read(source, target, below))
        biases = make.biases(channels, len(weights))
        expected = reference.conv_layer(inputs, weights, biases, target[0], relu)
        pulled = Pulled(expected.grids, make.leaves)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            got = native.conv_layer(inputs, weights, biases, target[0], relu)
            assert got.levels == expected.levels
            pulled.assert_equal(got.grids)


def lstm_case(
    base: Sequence[int],
    kernel: int,
    source: Levels,
    target: Levels,
    below: int,
    channels: int,
    batch: int,
    peephole: str,
    time: int = 4,
) -> tuple[Maker, Pyramid, Pyramid, Pyramid, LSTMWeights]:
    make = Maker(base, kernel)
    inputs = make.grids(source, time, batch, below)
    hidden, cell = (make.grids(target, batch, channels) for _ in range(2))
    count = len(hidden)
    peepholes = None
    if peephole != "none":
        per_cell = peephole == "cell"
        spaces = [h.shape[2:] if per_cell else (1,) * len(base) for h in hidden]
        peepholes = tuple(make.tensor(3, channels, *space) for space in spaces)
    weights = LSTMWeights(
        make.weights(4 * channels, channels_read(source, target, below)),
        make.weights(4 * channels, [channels] * count),
        make.biases(4 * channels, count),
        peepholes,
    )
    return make, inputs, hidden, cell, weights


def flat(pyramids: Sequence[Pyramid]) -> list[Tensor]:
    return [grid for pyramid in pyramids for grid in pyramid]


@needs_kernels
@pytest.mark.parametrize("flags", ["", "reset", "active", "reset active"])
@pytest.mark.parametrize("peephole", ["none", "channel", "cell"])
@pytest.mark.parametrize(("base", "kernel"), [((3, 3), 3), ((5, 3), 5), ((3, 3), 1), ((3,), 3)])
def test_lstm_layers_equal_the_reference(
    base: tuple[int, ...],
    kernel: int,
    peephole: str,
    flags: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [((0, 0), (0, 1), 4, 4, 5), ((1, 2), (0, 3), 3, 5, 1), ((0, 1), (0, 2), 2, 3, 17)]
    for source, target, below, channels, batch in cases:
        make, *arguments = lstm_case(base, kernel, source, target, below, channels, batch, peephole)
        coin = torch.Generator().manual_seed(1)
        reset = torch.rand(4, batch, generator=coin) < 0.3 if "reset" in flags else None
        active = torch.rand(4, batch, generator=coin) < 0.6 if "active" in flags else None
        expected = reference.lstm_layer(*arguments, reset, active)
        pulled = Pulled(flat(expected), make.leaves)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            got = native.lstm_layer(*arguments, reset, active)
            assert [g.levels for g in got] == [e.levels for e in expected]
            pulled.assert_equal(flat(got))


@needs_kernels
@pytest.mark.parametrize(("time", "batch"), [(33, 1), (70, 3), (45, 17)])
def test_long_sequences_on_small_grids_equal_the_reference(time: int, batch: int) -> None:
    """Their weights' gradients are summed over some steps at once, and the last sum has fewer."""
    make, *arguments = lstm_case((1,), 3, (0, 2), (0, 3), 3, 4, batch, "none", time)
    coin = torch.Generator().manual_seed(1)
    reset = torch.rand(time, batch, generator=coin) < 0.05
    active = torch.rand(time, batch, generator=coin) < 0.9
    got = native.lstm_layer(*arguments, reset, active)
    expected = reference.lstm_layer(*arguments, reset, active)
    assert_equal_with_gradients(flat(got), flat(expected), make.leaves)


@needs_kernels
def test_without_gradients_the_same_numbers_come_out() -> None:
    _, *arguments = lstm_case((3, 3), 3, (0, 1), (0, 2), 4, 4, 3, "channel")
    with torch.no_grad():
        quick = native.lstm_layer(*arguments)
    for a, b in zip(flat(quick), flat(native.lstm_layer(*arguments)), strict=True):
        assert torch.equal(a, b)
        assert not a.requires_grad


@needs_kernels
def test_only_wanted_gradients_are_made() -> None:
    _, inputs, hidden, cell, weights = lstm_case((3, 3), 3, (0, 1), (0, 1), 2, 3, 4, "none")
    plain = inputs.map(Tensor.detach)
    wanted = [*weights.recurrent, *hidden.grids]
    got = native.lstm_layer(plain, hidden, cell, weights)
    expected = reference.lstm_layer(plain, hidden, cell, weights)
    assert_equal_with_gradients(flat(got), flat(expected), wanted)


@needs_kernels
def test_outputs_that_nobody_uses_need_no_gradient() -> None:
    make, *arguments = lstm_case((3, 3), 3, (0, 1), (0, 2), 2, 3, 4, "channel")
    got = [native.lstm_layer(*arguments)[0][1]]
    expected = [reference.lstm_layer(*arguments)[0][1]]
    assert_equal_with_gradients(got, expected, make.leaves)


@needs_kernels
def test_no_time_steps_leave_the_state_as_it_is() -> None:
    _, inputs, hidden, cell, weights = lstm_case((3, 3), 3, (0, 1), (0, 1), 2, 3, 4, "none", time=0)
    outputs, last_hidden, last_cell = native.lstm_layer(inputs, hidden, cell, weights)
    assert [grid.shape for grid in outputs] == [(0, 4, 3, 3, 3), (0, 4, 3, 6, 6)]
    assert all(map(torch.equal, flat([last_hidden, last_cell]), flat([hidden, cell])))


@needs_kernels
def test_a_batch_of_nothing_gives_nothing() -> None:
    make = Maker((3, 3), 3)
    inputs = make.grids((0, 1), 0, 2)
    weights = make.weights(3, channels_read((0, 1), (0, 1), 2))
    outputs = native.conv_layer(inputs, weights, make.biases(3, 2), 0, True)
    assert [grid.shape for grid in outputs] == [(0, 3, 3, 3), (0, 3, 6, 6)]
    gradients = torch.autograd.grad([grid.sum() for grid in outputs], weights)
    assert not any(gradient.any() for gradient in gradients)


@needs_kernels
def test_grids_need_not_be_contiguous() -> None:
    make = Maker((3, 3), 3)
    inputs = make.grids((0, 1), 4, 2)
    turned = inputs.map(lambda grid: grid.transpose(2, 3))
    weights, biases = make.weights(3, [4, 4]), make.biases(3, 2)
    got = native.conv_layer(turned, weights, biases, 0, True)
    expected = reference.conv_layer(turned, weights, biases, 0, True)
    assert_equal_with_gradients(got.grids, expected.grids, make.leaves)


@needs_kernels
def test_large_values_saturate_and_a_nan_is_not_hidden() -> None:
    _, inputs, hidden, cell, weights = lstm_case((3, 3), 3, (0, 1), (0, 0), 1, 1, 1, "none")
    with torch.no_grad():
        loud = inputs.map(lambda grid: grid * 1e6)
        got = native.lstm_layer(loud, hidden, cell, weights)
        expected = reference.lstm_layer(loud, hidden, cell, weights)
        for g, e in zip(flat(got), flat(expected), strict=True):
            assert_near(g, e)
        inputs.grids[1][0, 0, 0, 3, 3] = float("nan")
        outputs, _, _ = native.lstm_layer(inputs, hidden, cell, weights)
        assert outputs[0].isnan().any()


@needs_kernels
@pytest.mark.parametrize("threads", THREADS)
def test_the_same_thread_count_gives_the_same_bits(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_threads(monkeypatch, threads)
    make, *arguments = lstm_case((3, 3), 3, (0, 1), (0, 2), 4, 4, 9, "none")
    runs = [
        torch.autograd.grad(sum(g.sum() for g in flat(native.lstm_layer(*arguments))), make.leaves)
        for _ in range(3)
    ]
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


@needs_kernels
def test_several_python_threads_may_call_at_once() -> None:
    make = Maker((3, 3), 3)
    inputs, weights, biases = (
        make.grids((0, 2), 8, 4),
        make.weights(4, [8, 12, 8]),
        make.biases(4, 3),
    )
    expected = native.conv_layer(inputs, weights, biases, 0, True)
    wrong: list[int] = []

    def work() -> None:
        for i in range(50):
            with torch.no_grad():
                got = native.conv_layer(inputs, weights, biases, 0, True)
            if not all(map(torch.equal, got, expected)):
                wrong.append(i)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@needs_kernels
def test_kernels_work_in_a_forked_process() -> None:
    code = """
import os, torch
from mgmem.ops import native
from mgmem.pyramid import Pyramid
torch.set_num_threads(2)
x = Pyramid(0, (torch.ones(8, 2, 3, 3),))
run = lambda: native.conv_layer(x, [torch.ones(2, 2, 3, 3)], [torch.zeros(2)], 0, True).grids[0]
before = run()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(run(), before) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


@needs_kernels
def test_memory_is_used_again_but_never_while_in_use() -> None:
    count = blocks.LARGE
    first = library.empty((count,)).fill_(1.0)
    view, address = first[10:20], first.data_ptr()
    del first
    second = library.empty((count,)).fill_(2.0)
    assert second.data_ptr() != address
    assert (view == 1.0).all()
    del view
    assert library.empty((count,)).data_ptr() == address


@pytest.fixture
def fresh_library() -> Iterator[None]:
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.mark.usefixtures("fresh_library")
@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_working_compiler_one_line_is_logged_and_nothing_raised(
    compiler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="mgmem.native"):
        assert not native.available()
        assert not native.available()
    assert len(caplog.records) == 1
    assert compiler in caplog.text
    assert [path for path in tmp_path.rglob("*") if path.name != "kernels"] == []


@pytest.mark.usefixtures("fresh_library")
def test_an_empty_path_means_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path))
    assert not native.available()


@needs_kernels
@pytest.mark.usefixtures("fresh_library")
def test_the_library_is_built_once_and_announced_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # What a real compiler makes of the kernels all other tests say.
    quick = tmp_path / "c++"
    copied = f'while [ "$1" != -o ]; do shift; done\ncp {build.library_path()} "$2"\n'
    quick.write_text(f"#!/bin/sh\n{copied}")
    quick.chmod(0o755)
    monkeypatch.setenv("CXX", str(quick))
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path / "new"))
    with caplog.at_level(logging.INFO, logger="mgmem.native"):
        first = build.library_path()
        changed = first.stat().st_mtime_ns
        assert build.library_path() == first
    assert len(caplog.records) == 1
    assert first.stat().st_mtime_ns == changed
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_a_cache_that_can_not_be_written_is_a_build_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(build.BuildError, match=os.sep.join(["file", "cache"])):
        build.library_path()
