"""Training leaves no memory behind."""

from __future__ import annotations

import gc
import weakref

import psutil
import pytest
import torch

from mgmem import MultigridMemory, backend


def _step(
    memory: MultigridMemory, optimizer: torch.optim.Optimizer, x: torch.Tensor, state: object
) -> object:
    optimizer.zero_grad()
    h, state = memory(x, state)
    sum(layer.finest.square().mean() for layer in h).backward()
    optimizer.step()
    return state.detach()


def test_a_thousand_training_steps_leave_resident_memory_flat() -> None:
    memory = MultigridMemory(4, "0:4 0-1:4")
    optimizer = torch.optim.SGD(memory.parameters(), 1e-3)
    x, state, process = torch.randn(1, 1, 4, 3, 3), None, psutil.Process()
    with backend("scan"):
        for _ in range(100):
            state = _step(memory, optimizer, x, state)
        before = process.memory_info().rss
        for _ in range(900):
            state = _step(memory, optimizer, x, state)
    assert process.memory_info().rss < 1.05 * before


class _Probe:
    """Lives exactly as long as the node of the graph that it is attached to."""


def _probed(result: torch.Tensor) -> _Probe:
    probe = _Probe()
    result.grad_fn.metadata[probe] = probe  # type: ignore[union-attr]
    return probe


@pytest.mark.parametrize("way", ["reference", "scan", "auto"])
@pytest.mark.parametrize("checkpoint_every", [None, 2])
def test_a_graph_is_freed_with_its_results_and_without_the_garbage_collector(
    way: str, checkpoint_every: int | None
) -> None:
    memory = MultigridMemory(
        4, "0-1:4 0-2:4", peephole="channel", checkpoint_every=checkpoint_every
    )
    x, reset = torch.randn(5, 2, 4, 3, 3), torch.rand(5, 2) < 0.3
    with backend(way):
        memory(x, reset=reset)  # what a first call sets up for good does not count
    gc.collect()
    gc.disable()
    try:
        with backend(way):
            h, state = memory(x, reset=reset)
        results = [grid for layer in h for grid in layer] + list(state.tensors().values())
        probes = [weakref.ref(_probed(result)) for result in results]
        assert all(probe() is not None for probe in probes)
        sum(result.sum() for result in results).backward()
        del h, state, results
        assert all(probe() is None for probe in probes)
    finally:
        gc.enable()
