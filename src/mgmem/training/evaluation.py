"""How good is it, on episodes it never saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from mgmem.model import ask
from mgmem.tasks.base import Batch, Episodes, FiniteTask, Reads, Score, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.device import Amp, autocast

TEST_SEED = 20_200_712
"""Root of the validation and test streams: the same fresh episodes for every model."""


Watch = Callable[[tuple[Tensor, ...], Batch, int], None]
"""Sees the answers (logits) to a batch, and the step at which the batch begins."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    stream: SeedStream,
    episodes: int,
    *,
    batch: int = 50,
    chunk: int = 32,
    queries: int = 13,
    amp: Amp = "none",
    progress: Callable[[int], None] = lambda done: None,
    watch: Watch = lambda answers, batch, start: None,
) -> Score:
    """Score ``model`` on the first ``episodes`` episodes of a stream, each from start to end.

    Tasks that read during an episode are queried after ``queries`` of its steps, evenly spread
    and the last among them; others at their natural places. ``watch`` sees all answers as well.
    A task with fewer episodes is scored on all of them.
    """
    if isinstance(task, FiniteTask):
        episodes = min(episodes, task.size(stream.split))
    score = task.new_score()
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    for first in range(0, episodes, batch):
        count = min(batch, episodes - first)
        state, start = None, 0
        for piece in _pieces(task.episodes(stream, first, count), task.reads, chunk, queries):
            piece = piece.to(device)
            with autocast(device, amp):
                answers, state = ask(model, piece, state)
            if len(piece.times):
                score.add(answers, piece)
                watch(answers, piece, start)
            start += len(piece.inputs)
        progress(first + count)
    model.train(was_training)
    return score


def _pieces(episodes: Episodes, reads: Reads, chunk: int, queries: int) -> Iterator[Batch]:
    """Episodes from start to end: in chunks if asked at any steps, else whole."""
    if reads != "during":
        yield episodes.batch(0, episodes.length)
        return
    asked = query_steps(episodes.length, queries)
    for start in range(0, episodes.length, chunk):
        stop = min(start + chunk, episodes.length)
        yield episodes.batch(start, stop, asked[(asked >= start) & (asked < stop)] - start)


def query_steps(length: int, queries: int) -> torch.Tensor:
    """(queries,) int64 steps of an episode, evenly spread, ending with the last."""
    count = min(queries, length)
    return torch.arange(1, count + 1) * length // count - 1
