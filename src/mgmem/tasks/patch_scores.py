"""Mapping's score apart for common and for rare patches.

F is pooled over pixels, and the commonest patch, nothing but free cells, has a large part of
them: a memory that knows little else can have a high F. Here the patches asked for are ranked by
how often they were asked for, and each part of that ranking gets a score of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.tasks.base import Batch
from mgmem.tasks.seeds import Ints

# Ranks at which the parts end: the commonest patch, then two handfuls, and the long tail.
_PARTS = (1, 10, 30)


@dataclass(frozen=True)
class PatchRow:
    """Scores of the queries for patches of some ranks."""

    ranks: str
    share: float
    """Share of all queries."""
    precision: float
    recall: float
    f: float


class PatchScore:
    """Adds up answers of the first reader, patch by patch."""

    def __init__(self) -> None:
        self._patches: list[npt.NDArray[np.uint8]] = []
        self._counts: list[Ints] = []

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """answers: logits, (Q, B, 1, grid, grid) first; the batch's queries are (Q, B, 4, k, k)."""
        said, true = (answers[0].detach() >= 0).flatten(2), (batch.targets[0] >= 0.5).flatten(2)
        counts = torch.stack([(said & true).sum(2), said.sum(2), true.sum(2)], 2).flatten(0, 1)
        walls = batch.queries[0][:, :, 1].flatten(2).flatten(0, 1)
        if batch.weight is not None:
            counted = batch.weight[0].bool().flatten()
            counts, walls = counts[counted], walls[counted]
        self._counts.append(counts.cpu().numpy())
        self._patches.append(np.packbits(walls.bool().cpu().numpy(), axis=1))

    def rows(self) -> list[PatchRow]:
        """The commonest patch first."""
        counts, patches = np.concatenate(self._counts), np.concatenate(self._patches)
        _, patch, asked = np.unique(patches, axis=0, return_inverse=True, return_counts=True)
        rank = np.empty(len(asked), np.int64)
        rank[np.argsort(-asked, kind="stable")] = np.arange(len(asked))
        ranks, result, start = rank[patch.reshape(-1)], [], 0
        for stop in (*(part for part in _PARTS if part < len(asked)), len(asked)):
            chosen = (ranks >= start) & (ranks < stop)
            name = f"{stop}" if stop == start + 1 else f"{start + 1} to {stop}"
            result.append(_row(name, counts[chosen], len(counts)))
            start = stop
        return result


def _row(ranks: str, counts: Ints, total: int) -> PatchRow:
    hits, said, true = counts.sum(0).tolist()
    return PatchRow(
        ranks,
        len(counts) / total,
        precision=hits / max(said, 1),
        recall=hits / max(true, 1),
        f=2 * hits / max(said + true, 1),
    )
