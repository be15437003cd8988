"""What a DNC's memory holds in a mapping episode: its matrix over time, and where it writes.

The counterpart of `memory`, for the same episodes: the memory of a DNC is a list of slots, so
nothing in it lies where it lies on the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel
from mgmem.errors import UsageError
from mgmem.tasks.base import Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps


@dataclass(frozen=True)
class DNCHistory:
    """A DNC's memory after every step of an episode.

    matrix: (T, slots, width). usage, write_weights: (T, slots). asked: steps with a query.
    """

    name: str
    episode: int
    matrix: npt.NDArray[np.float32]
    usage: npt.NDArray[np.float32]
    write_weights: npt.NDArray[np.float32]
    asked: tuple[int, ...]


def is_dnc(model: nn.Module) -> bool:
    """Whether a model's memory is a DNC's."""
    return isinstance(model, FlatModel) and isinstance(model.core, DNC)


@torch.no_grad()
def trace_dnc(
    model: nn.Module,
    task: Task,
    episode: int = 0,
    steps: Sequence[int] | None = None,
    *,
    name: str = "dnc",
    stream: SeedStream | None = None,
) -> DNCHistory:
    """Run an episode, queried after ``steps`` (None: as in evaluation), and keep the memory.

    A task that reads "after" is queried at its natural places, and T counts these steps too.
    """
    if not isinstance(model, FlatModel) or not isinstance(model.core, DNC):
        raise UsageError(f"{name} is no DNC: it has no matrix of slots to look at")
    if episode < 0:
        raise UsageError(f"episode {episode}: episodes are numbered from 0")
    run = task.episodes(stream or SeedStream(TEST_SEED, "test"), episode, 1)
    times = query_steps(run.length, 13) if steps is None else torch.tensor(sorted(set(steps)))
    piece = run.batch(0, run.length, None if task.reads == "after" else times)
    piece = piece.to(next(model.parameters()).device)
    trace = model.core.trace(model.steps(piece.inputs, piece.queries, piece.times))
    return DNCHistory(
        name=name,
        episode=episode,
        matrix=trace.memory[:, 0].cpu().float().numpy(),
        usage=trace.usage[:, 0].cpu().float().numpy(),
        write_weights=trace.write_weights[:, 0].cpu().float().numpy(),
        asked=tuple(piece.times.tolist()) if task.reads == "during" else (),
    )
