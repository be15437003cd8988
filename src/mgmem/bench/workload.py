"""What is timed: one training update of an experiment's model, or of a 1D memory for words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.bench.measure import multiply_adds
from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.model import ask
from mgmem.nn import MultigridMemory
from mgmem.spec import memory_costs
from mgmem.tasks.base import Batch, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.feed import Feed, Share
from mgmem.training.optim import AdamW
from mgmem.training.sequences import Sequences
from mgmem.training.walks import Queries, Walks

CHUNK = 20
"""Steps of an update: the reference's truncation, whatever recipes do."""
TRAINING_PASSES = 3
"""A training step does the forward pass's multiply-adds three times: output, input, weights."""
WORDS = "words"
"""The 1D workload: 1 to 16 positions, 51 channels, as for answering questions about stories."""
_WORDS_SPEC, _WORDS_CHANNELS = "0-1:51 0-2:51 0-3:51 0-4:51 0-4:51", 50


@dataclass(frozen=True)
class Learner:
    """An experiment's model with all that an update takes."""

    task: Task
    model: nn.Module
    optimizer: torch.optim.Optimizer
    lesson: Walks | Sequences
    batch: int

    def feed(self) -> Feed:
        """Training batches, from the first."""
        return self.lesson.feed(self.task, SeedStream(0, "train"), self.batch, Share())

    def update(self, batch: Batch) -> None:
        """Forward, backward, optimiser."""
        answers, _ = ask(self.model, batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.task.loss(answers, batch).backward()
        self.optimizer.step()


@dataclass(frozen=True)
class Workload:
    """``run`` makes one update, on whatever backend is set; the rest says how much that is."""

    name: str
    batch: int
    steps: int
    queries: int
    flops: float
    run: Callable[[], None]
    learner: Learner | None = None

    def on(self, backend: str) -> Callable[[], None]:
        """An update on this backend."""

        def run() -> None:
            with ops.backend(backend):
                self.run()

        return run


def workload(name: str, batch: int, queries: int = 4, words: int = 80) -> Workload:
    """An experiment by name with about so many queries an update, or ``words``: whole stories."""
    if name == WORDS:
        return _stories(batch, words)
    if not 1 <= queries <= CHUNK:
        raise UsageError(f"an update of {CHUNK} steps takes 1 to {CHUNK} queries, not {queries}")
    task, model = find(name).build()
    lesson = Walks(CHUNK, queries=Queries(queries / CHUNK))
    after = task.reads == "after"
    learner = Learner(task, model, AdamW().build(model), Sequences() if after else lesson, batch)
    feed = learner.feed()
    piece = feed.next()
    steps, asked = piece.inputs.shape[0], len(piece.times)
    work = multiply_adds(model, steps, asked) * piece.inputs.shape[1]
    flops = 2.0 * TRAINING_PASSES * work
    run = lambda: learner.update(feed.next())  # noqa: E731
    return Workload(name, batch, steps, asked, flops, run, learner)


def _stories(batch: int, words: int) -> Workload:
    """Random words into a 1D memory; the loss asks all of its last layer."""
    memory = MultigridMemory(_WORDS_CHANNELS, _WORDS_SPEC, base=(1,))
    optimizer = torch.optim.Adam(memory.parameters(), lr=1e-4)
    x = torch.randn(words, batch, _WORDS_CHANNELS, 1)
    costs = memory_costs(memory.spec, memory.input, memory.base, kernel=memory.kernel)
    flops = 2.0 * TRAINING_PASSES * words * batch * sum(cost.multiply_adds for cost in costs)

    def run() -> None:
        h, _ = memory(x)
        optimizer.zero_grad(set_to_none=True)
        losses: list[Tensor] = [grid.square().mean() for grid in h[-1]]
        torch.stack(losses).sum().backward()
        optimizer.step()

    return Workload(WORDS, batch, words, 0, flops, run)
