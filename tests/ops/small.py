"""A small memory with a reader, and all that they answer, for tests of what is done to them."""

from __future__ import annotations

import torch
from torch import Tensor

from mgmem import MultigridMemory, backend
from mgmem.nn import MultigridReader

MESH, TAIL = "0-1:3 0-1:3 0-2:4", "0-1:3 0:2"


def networks() -> tuple[MultigridMemory, MultigridReader]:
    memory = MultigridMemory(2, MESH)
    return memory, memory.reader(tail=TAIL)


def x(time: int = 2, batch: int = 2) -> Tensor:
    return torch.randn(time, batch, 2, 3, 3, generator=torch.Generator().manual_seed(1))


def run(memory: MultigridMemory, reader: MultigridReader, way: str, learning: bool) -> list[Tensor]:
    """Answers and states: of a sequence, and of the steps that follow it one by one."""
    with backend(way), torch.set_grad_enabled(learning):
        h, state = memory(x())
        results = [reader(x(), h)]
        for step in x(3):
            h, state = memory.step(step, state)
            results.append(reader(step, h))
    return [*results, *state.tensors().values()]
