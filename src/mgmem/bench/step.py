"""One-step inference: the paper's runtime section, multigrid against DNC at the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mgmem.bench.measure import seconds_each
from mgmem.experiments import count_parameters, find
from mgmem.tasks.base import Task


def bench_step(names: list[str], repeats: int, batch: int = 1) -> dict[str, Any]:
    """Seconds for one observation and one query, state carried, for each experiment's model."""
    models = [find(name).build() for name in names]
    times = seconds_each([_stepper(task, model.eval(), batch) for task, model in models], repeats)
    rows = {}
    for name, (_, model), seconds in zip(names, models, times, strict=True):
        rows[name] = {
            "seconds": seconds,
            "parameters": count_parameters(model),
            "cells": model.cells,
        }
    return {"batch": batch, "threads": torch.get_num_threads(), "models": rows}


def _stepper(task: Task, model: nn.Module, batch: int) -> Callable[[], None]:
    inputs = torch.rand(1, batch, *task.shapes.input)
    queries = tuple(torch.rand(1, batch, *shape) for shape in task.shapes.queries)
    times = torch.zeros(1, dtype=torch.int64)
    state: Any = None

    @torch.inference_mode()
    def step() -> None:
        nonlocal state
        _, state = model(inputs, state, queries=queries, times=times)

    return step
