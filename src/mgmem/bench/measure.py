"""Clocks, peak memory, and the matrix product that everything is held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from mgmem.nn import EncoderDecoder, MultigridCNN, MultigridMemory, ReadWrite
from mgmem.nn.words import WordMemory
from mgmem.spec import conv_costs, memory_costs


def seconds_each(functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each function, called in turn so that noise falls on all alike."""
    for function in functions:
        function()
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            taken[index].append(time.perf_counter() - start)
    return [statistics.median(values) for values in taken]


def matrix_product(size: int = 1536) -> tuple[Callable[[], object], float]:
    """A large float32 matrix product, and its floating point operations."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return lambda: a @ b, 2.0 * size**3


def peak_memory(function: Callable[[], object]) -> int | None:
    """Most bytes resident while ``function`` ran, on Linux; None elsewhere."""
    clear, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    try:
        clear.write_text("5")
        function()
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


def multiply_adds(model: nn.Module, steps: int, queries: int) -> int:
    """Multiply-adds of a forward pass over one sequence, counted from the specification."""
    if isinstance(model, ReadWrite):
        return steps * _memory_work(model.memory) + queries * sum(
            _conv_work(reader) for reader in model.readers
        )
    if isinstance(model, EncoderDecoder):
        decoding = _memory_work(model.decoder) + _conv_work(model.tail)
        return steps * _memory_work(model.encoder) + queries * decoding
    if isinstance(model, WordMemory):
        return steps * _memory_work(model.memory) + queries * _conv_work(model.tail)
    raise TypeError(f"no specification to count from: {type(model).__name__}")


def _memory_work(memory: MultigridMemory) -> int:
    costs = memory_costs(memory.spec, memory.input, memory.base, kernel=memory.kernel)
    return sum(cost.multiply_adds for cost in costs)


def _conv_work(network: nn.Module) -> int:
    assert isinstance(network, MultigridCNN)
    costs = conv_costs(
        network.spec, network.input, network.base, kernel=network.kernel, sees=network.sees
    )
    return sum(cost.multiply_adds for cost in costs)
