"""How fast training is, for each backend, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mgmem import ops
from mgmem.bench.measure import matrix_product, peak_memory, seconds_each
from mgmem.bench.workload import Learner, Workload
from mgmem.nn import MultigridConvLSTM, ReadWrite
from mgmem.pyramid import Pyramid


def bench_training(load: Workload, backends: Sequence[str], repeats: int) -> dict[str, Any]:
    """Updates per second on each backend, in one run."""
    product, product_flops = matrix_product()
    runs = [load.on(backend) for backend in backends]
    *times, product_time = seconds_each([*runs, product], repeats)
    product_rate = product_flops / product_time / 1e9
    rows = {}
    for backend, seconds, run in zip(backends, times, runs, strict=True):
        rate = load.flops / seconds / 1e9
        rows[backend] = {
            "updates_per_second": 1 / seconds,
            "gflops": rate,
            "share_of_matrix_product": rate / product_rate,
            "peak_bytes": peak_memory(run),
            "shares": _shares(load.learner, backend, repeats) if load.learner else None,
        }
    return {
        "experiment": load.name,
        "batch": load.batch,
        "chunk": load.steps,
        "queries": load.queries,
        "threads": torch.get_num_threads(),
        "matrix_product_gflops": product_rate,
        "flops_per_update": load.flops,
        "backends": rows,
    }


def _shares(learner: Learner, backend: str, repeats: int) -> dict[str, float] | None:
    """Each part timed on its own, as a share of their sum; reader-writers only."""
    model = learner.model
    if not isinstance(model, ReadWrite):
        return None
    feed = learner.feed()
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
        "optimiser": lambda: learner.optimizer.step(),
        "data": lambda: feed.next(),
    }
    times = dict(zip(parts, seconds_each(list(parts.values()), max(3, repeats // 3)), strict=True))
    # The recurrence is what the memory takes beyond its input convolutions.
    times["recurrence"] = max(0.0, times.pop("memory") - times["input convolution"])
    total = sum(times.values())
    return {name: seconds / total for name, seconds in times.items()}


def _backward(outputs: Sequence[Tensor]) -> None:
    torch.autograd.backward(list(outputs), [torch.ones_like(output) for output in outputs])
