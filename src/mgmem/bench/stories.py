"""How fast stories are learned from: words per second by length, and hours for an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from mgmem.bench.measure import matrix_product, multiply_adds, seconds_each
from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.model import ask
from mgmem.nn.words import WordMemory
from mgmem.tasks.babi import Babi
from mgmem.tasks.base import Batch
from mgmem.tasks.seeds import SeedStream
from mgmem.training.feed import Share
from mgmem.training.stories import Stories

_PASSES = 3
"""Training does the forward pass's multiply-adds three times: output, input, weights."""


def bench_stories(name: str, lengths: Sequence[int], repeats: int, batch: int) -> dict[str, Any]:
    """Words per second, forward and backward, of batches of real stories near some lengths.

    The hours of an epoch follow from the lengths that its batches have.
    """
    task, model = find(name).build()
    if not isinstance(task, Babi):
        raise UsageError(f"{name} tells no stories; babi does")
    pool = _pool(task, batch)
    near = [min(pool, key=lambda b: abs(b.inputs.shape[0] - length)) for length in lengths]
    product, product_flops = matrix_product()
    *times, product_time = seconds_each([*(_learn(model, task, b) for b in near), product], repeats)
    rows = [_row(model, b, seconds) for b, seconds in zip(near, times, strict=True)]
    # A batch of the pool is taken to run as fast as the measured one nearest to it in length.
    seconds = sum(
        _words(b) / min(rows, key=lambda r: abs(r["steps"] - b.inputs.shape[0]))["words_per_second"]
        for b in pool
    )
    lesson = Stories()
    return {
        "experiment": name,
        "threads": torch.get_num_threads(),
        "matrix_product_gflops": product_flops / product_time / 1e9,
        "lengths": rows,
        "words_per_second": sum(map(_words, pool)) / seconds,
        "epoch_updates": round(len(pool) * lesson.pools_per_epoch(task)),
        "epoch_words": round(sum(map(_words, pool)) * lesson.pools_per_epoch(task)),
        "epoch_hours": seconds * lesson.pools_per_epoch(task) / 3600,
    }


def _pool(task: Babi, batch: int) -> list[Batch]:
    """All batches of the first pool of training."""
    feed = Stories().feed(task, SeedStream(0, "train"), batch, Share())
    batches = []
    while feed.state_dict()["pool"] == 0:
        batches.append(feed.next())
    return batches


def _learn(model: nn.Module, task: Babi, batch: Batch) -> Callable[[], None]:
    def run() -> None:
        answers, _ = ask(model, batch)
        task.loss(answers, batch).backward()

    return run


def _words(batch: Batch) -> int:
    """Words that are computed, what pads short stories included."""
    return batch.inputs.shape[0] * batch.inputs.shape[1]


def _row(model: nn.Module, batch: Batch, seconds: float) -> dict[str, Any]:
    steps, stories = batch.inputs.shape[:2]
    work = None
    if isinstance(model, WordMemory):
        work = 2 * _PASSES * stories * multiply_adds(model, steps, len(batch.times)) / seconds / 1e9
    return {
        "steps": steps,
        "stories": stories,
        "words_per_second": _words(batch) / seconds,
        "gflops": work,
    }
