"""Time and bytes per step against memory size: linear for multigrid, quadratic for the DNC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mgmem.baselines.dnc import DNC
from mgmem.bench.measure import seconds_each
from mgmem.nn import MultigridMemory

_WIDTH = 16


def bench_scaling(
    multigrid_cells: Sequence[int], dnc_cells: Sequence[int], repeats: int
) -> dict[str, Any]:
    """One step, batch 1, no gradient, for memories of about the given numbers of cells."""
    rows = []
    for cells in sorted({*multigrid_cells, *dnc_cells}):
        made = []
        if cells in multigrid_cells:
            made.append(("multigrid", *_multigrid(cells)))
        if cells in dnc_cells:
            made.append(("dnc", *_dnc(cells)))
        count = max(3, min(repeats, int(repeats * 100_000 / cells)))
        times = seconds_each([step for _, step, _, _ in made], count)
        for (system, _, exact, bytes_), seconds in zip(made, times, strict=True):
            rows.append({"system": system, "cells": exact, "seconds": seconds, "bytes": bytes_})
    slopes = {
        system: _slope([row for row in rows if row["system"] == system])
        for system in ("multigrid", "dnc")
    }
    return {"threads": torch.get_num_threads(), "rows": rows, "exponents": slopes}


def _multigrid(cells: int) -> tuple[Callable[[], None], int, int]:
    """A mesh like the paper's small one, its deepest layers reaching to finer levels."""
    best = None
    for highest in range(1, 12):
        spec = " ".join(f"0-{min(level, highest)}:8" for level in range(1, highest + 1))
        memory_cells = sum(
            8 * 9 * 4**j for level in range(1, highest + 1) for j in range(min(level, highest) + 1)
        )
        gap = abs(math.log(memory_cells / cells))
        if best is None or gap < best[0]:
            best = (gap, spec)
    assert best is not None
    memory = MultigridMemory(4, best[1]).eval()
    x = torch.rand(1, 4, 3, 3)
    state = memory.initial_state(1)

    @torch.inference_mode()
    def step() -> None:
        nonlocal state
        _, state = memory.step(x, state)

    return step, memory.cells, state.nbytes


def _dnc(cells: int) -> tuple[Callable[[], None], int, int]:
    core = DNC(19, 64, slots=max(1, cells // _WIDTH), width=_WIDTH).eval()
    x = torch.rand(1, 19)
    state = core.initial_state(1)
    bytes_ = sum(tensor.nbytes for tensor in state.tensors().values())

    @torch.inference_mode()
    def step() -> None:
        nonlocal state
        _, state = core.step(x, state)

    return step, core.slots * _WIDTH, bytes_


def _slope(rows: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """Exponent of growth (1: linear, 2: quadratic) over the larger half of the sizes."""
    larger = rows[len(rows) // 2 :]
    if len(larger) < 2:
        return None
    first, last = larger[0], larger[-1]
    grown = math.log(last["cells"] / first["cells"])
    return {key: math.log(last[key] / first[key]) / grown for key in ("seconds", "bytes")}
