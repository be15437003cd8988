"""How fast training is, for each backend, and where its time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.bench.measure import matrix_product, multiply_adds, peak_memory, seconds_each
from mgmem.experiments import find
from mgmem.nn import MultigridConvLSTM, ReadWrite
from mgmem.pyramid import Pyramid
from mgmem.tasks.base import Batch, Task
from mgmem.training.feed import make_feed
from mgmem.training.optim import build_optimizer
from mgmem.training.recipe import Recipe

TRAINING_PASSES = 3
"""A training step does the forward pass's multiply-adds three times: output, input, weights."""


def bench_training(name: str, backends: Sequence[str], repeats: int, batch: int) -> dict[str, Any]:
    """Updates per second of an experiment on each backend, in one run."""
    experiment = find(name)
    # Truncation of the reference, a fifth of the steps asked about: fixed, whatever recipes do.
    recipe = Recipe(batch=batch, groups=1, chunk=20, query_share=0.2)
    task, model = experiment.build()
    feed = make_feed(task, 0, recipe)
    piece = feed.next()
    optimizer = build_optimizer(model, recipe)
    product, product_flops = matrix_product()
    work = multiply_adds(model, piece.inputs.shape[0], len(piece.times)) * piece.inputs.shape[1]
    flops = 2.0 * TRAINING_PASSES * work

    def update(backend: str) -> Callable[[], None]:
        def run() -> None:
            with ops.backend(backend):
                _update(model, task, optimizer, feed.next())

        return run

    runs = [update(backend) for backend in backends]
    *times, product_time = seconds_each([*runs, product], repeats)
    product_rate = product_flops / product_time / 1e9
    rows = {}
    for backend, seconds, run in zip(backends, times, runs, strict=True):
        rate = flops / seconds / 1e9
        rows[backend] = {
            "updates_per_second": 1 / seconds,
            "gflops": rate,
            "share_of_matrix_product": rate / product_rate,
            "peak_bytes": peak_memory(run),
            "shares": _shares(model, task, recipe, optimizer, backend, repeats),
        }
    return {
        "experiment": name,
        "batch": recipe.batch,
        "chunk": recipe.chunk,
        "queries": len(piece.times),
        "threads": torch.get_num_threads(),
        "matrix_product_gflops": product_rate,
        "flops_per_update": flops,
        "backends": rows,
    }


def _update(model: nn.Module, task: Task, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    answers, _ = model(
        batch.inputs, None, queries=batch.queries, times=batch.times, reset=batch.reset
    )
    optimizer.zero_grad(set_to_none=True)
    task.loss(answers, batch).backward()
    optimizer.step()


def _shares(
    model: nn.Module,
    task: Task,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    backend: str,
    repeats: int,
) -> dict[str, float] | None:
    """Each part timed on its own, as a share of their sum; reader-writers only."""
    if not isinstance(model, ReadWrite):
        return None
    feed = make_feed(task, 0, recipe)
    batch = feed.next()
    with ops.backend(backend), torch.no_grad():
        h, _ = model.memory(batch.inputs)
    layers = [layer for layer in model.memory.layers if isinstance(layer, MultigridConvLSTM)]
    seen = [layer.map(lambda g: g[batch.times].requires_grad_()) for layer in h]

    def write() -> None:
        with ops.backend(backend):
            _backward([grid for layer in model.memory(batch.inputs)[0] for grid in layer])

    def convolve() -> None:
        with ops.backend(backend):
            inputs = Pyramid(model.memory.input.lowest, (batch.inputs,))
            for layer, output in zip(layers, h, strict=True):
                flat = inputs.map(lambda g: g.flatten(0, 1).detach().requires_grad_())
                weights, biases = list(layer.input_weights), list(layer.biases)
                made = ops.conv_layer(flat, weights, biases, layer.layer.lowest, False)
                _backward(list(made))
                inputs = output

    def read() -> None:
        with ops.backend(backend):
            for reader, query in zip(model.readers, batch.queries, strict=True):
                _backward([reader(query, seen)])

    parts = {
        "input convolution": convolve,
        "memory": write,
        "reader": read,
        "optimiser": lambda: optimizer.step(),
        "data": lambda: feed.next(),
    }
    times = dict(zip(parts, seconds_each(list(parts.values()), max(3, repeats // 3)), strict=True))
    # The recurrence is what the memory takes beyond its input convolutions.
    times["recurrence"] = max(0.0, times.pop("memory") - times["input convolution"])
    total = sum(times.values())
    return {name: seconds / total for name, seconds in times.items()}


def _backward(outputs: Sequence[Tensor]) -> None:
    torch.autograd.backward(list(outputs), [torch.ones_like(output) for output in outputs])
