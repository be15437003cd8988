"""Convolutions of narrow rows with many channels equal the reference, around every switch-over."""

from __future__ import annotations

import pytest
import torch
from test_native import (
    THREADS,
    Levels,
    Maker,
    Pulled,
    assert_numbers_do_not_depend_on_the_threads,
    assert_only_wanted_gradients_are_made,
    channels_read,
    flat,
    lstm_case,
    needs_kernels,
    use_threads,
)

from mgmem.ops import native, reference

# Sides of one place, of fewer than a kernel has taps, and of 16 and more, where other kernels take
# over: levels 0 to 2 of bases 4 and 5.
BASES = [1, 2, 4, 5]
REACHES = [((0, 2), (0, 2)), ((1, 1), (2, 2)), ((2, 2), (1, 1)), ((0, 2), (1, 1))]
# Channels below and written: just under the fewest that are worth it, one vector, vectors and a
# rest, several blocks; samples that fill tiles or not.
CHANNELS = [(3, 15, 2), (16, 16, 5), (7, 17, 1), (24, 51, 3), (40, 100, 9)]


@needs_kernels
@pytest.mark.parametrize("side", BASES)
@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_conv_layers_equal_the_reference_around_every_switch(
    side: int, reach: tuple[Levels, Levels], kernel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = reach
    for below, channels, samples in CHANNELS:
        make = Maker((side,), kernel)
        inputs = make.grids(source, samples, below)
        weights = make.weights(channels, channels_read(source, target, below))
        biases = make.biases(channels, len(weights))
        # Without ReLU: whether a sum near zero is above it is a matter of rounding.
        arguments = (inputs, weights, biases, target[0], False)
        pulled = Pulled(reference.conv_layer(*arguments).grids, make.leaves)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            pulled.assert_equal(native.conv_layer(*arguments).grids)


@needs_kernels
@pytest.mark.parametrize("flags", ["", "reset", "active", "reset active"])
@pytest.mark.parametrize("side", [1, 3, 8])
def test_lstm_layers_equal_the_reference_on_narrow_rows(
    side: int, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source, target, below, channels, batch in [
        ((0, 1), (0, 1), 5, 4, 3),
        ((0, 0), (1, 1), 16, 12, 9),
        ((0, 1), (0, 0), 24, 33, 17),
    ]:
        make, *arguments = lstm_case((side,), 3, source, target, below, channels, batch, "channel")
        coin = torch.Generator().manual_seed(1)
        reset = torch.rand(4, batch, generator=coin) < 0.3 if "reset" in flags else None
        active = torch.rand(4, batch, generator=coin) < 0.6 if "active" in flags else None
        pulled = Pulled(flat(reference.lstm_layer(*arguments, reset, active)), make.leaves)
        for threads in THREADS:
            use_threads(monkeypatch, threads)
            pulled.assert_equal(flat(native.lstm_layer(*arguments, reset, active)))


@needs_kernels
def test_numbers_of_narrow_rows_do_not_depend_on_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, *arguments = lstm_case((1,), 3, (0, 3), (0, 4), 24, 24, 19, "channel")
    assert_numbers_do_not_depend_on_the_threads(make, arguments, monkeypatch)


@needs_kernels
def test_only_wanted_gradients_are_made_on_narrow_rows() -> None:
    assert_only_wanted_gradients_are_made((2,), 1)
