"""Convolutions in tiles of 4x4 equal the reference, on both sides of every switch-over."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from test_native import (
    THREADS,
    Maker,
    Pulled,
    assert_equal_with_gradients,
    assert_numbers_do_not_depend_on_the_threads,
    assert_only_wanted_gradients_are_made,
    channels_read,
    flat,
    lstm_case,
    needs_kernels,
    use_threads,
)

from mgmem.ops import native, pieces, reference, scan

# Sides around the smallest that is cut into tiles, one that is no multiple of four between, rows of
# more tiles than lanes, tall and wide grids; levels 0 to 2.
BASES = [(2, 3), (3, 3), (4, 3), (3, 5), (5, 8), (3, 12)]
# Channels below and written around the fewest that are worth it; samples that fill groups or not.
CHANNELS = [(4, 7, 2), (8, 8, 1), (8, 11, 3), (9, 12, 17), (16, 16, 5), (24, 24, 2)]
REACHES = [((0, 2), (1, 2)), ((1, 1), (2, 2)), ((2, 2), (1, 2))]


@needs_kernels
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("reach", REACHES)
def test_conv_layers_equal_the_reference_around_every_switch(
    base: tuple[int, int],
    reach: tuple[tuple[int, int], tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = reach
    for below, channels, samples in CHANNELS:
        make = Maker(base, 3)
        inputs = make.grids(source, samples, below)
        weights = make.weights(channels, channels_read(source, target, below))
        biases = make.biases(channels, len(weights))
        # Without ReLU: whether a sum near zero is above it is a matter of rounding.
        arguments = (inputs, weights, biases, target[0], False)
        pulled = Pulled(reference.conv_layer(*arguments).grids, make.leaves)
        pulled.assert_equal(scan.conv_layer(*arguments).grids)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            pulled.assert_equal(native.conv_layer(*arguments).grids)


@needs_kernels
@pytest.mark.parametrize("flags", ["", "reset", "active", "reset active"])
@pytest.mark.parametrize("base", [(3, 3), (4, 5)])
def test_lstm_layers_equal_the_reference_in_tiles(
    base: tuple[int, int], flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source, target, below, channels, batch in [
        ((1, 3), (2, 3), 8, 8, 3),
        ((1, 1), (2, 2), 16, 12, 9),
        ((2, 2), (2, 2), 1, 2, 4),
    ]:
        make, *arguments = lstm_case(base, 3, source, target, below, channels, batch, "channel")
        coin = torch.Generator().manual_seed(1)
        reset = torch.rand(4, batch, generator=coin) < 0.3 if "reset" in flags else None
        active = torch.rand(4, batch, generator=coin) < 0.6 if "active" in flags else None
        pulled = Pulled(flat(reference.lstm_layer(*arguments, reset, active)), make.leaves)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            pulled.assert_equal(flat(native.lstm_layer(*arguments, reset, active)))


@needs_kernels
def test_numbers_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    make, *arguments = lstm_case((3, 3), 3, (1, 2), (1, 3), 12, 12, 19, "channel")
    assert_numbers_do_not_depend_on_the_threads(make, arguments, monkeypatch)


@needs_kernels
def test_only_wanted_gradients_are_made_in_tiles() -> None:
    assert_only_wanted_gradients_are_made((3, 3), 2)


@pytest.mark.parametrize("base", [(3, 3), (5,)])
@pytest.mark.parametrize("relu", [True, False])
def test_scan_in_pieces_equals_the_reference(
    base: tuple[int, ...], relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_FLOATS", 500)
    make = Maker(base, 3)
    inputs = make.grids((0, 2), 7, 4)
    weights, biases = make.weights(5, channels_read((0, 2), (0, 1), 4)), make.biases(5, 2)
    got = scan.conv_layer(inputs, weights, biases, 0, relu)
    expected = reference.conv_layer(inputs, weights, biases, 0, relu)
    assert_equal_with_gradients(got.grids, expected.grids, make.leaves)


@pytest.mark.parametrize("chosen", [None, "7"])
def test_waiting_is_set_for_this_process_alone_unless_the_user_has_chosen(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if chosen:
        monkeypatch.setenv("GOMP_SPINCOUNT", chosen)
    code = "import mgmem, os, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == [str(chosen), "True"]
