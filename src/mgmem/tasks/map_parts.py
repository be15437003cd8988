"""Mapping's score in parts: by patch, by the age of the memory, by the distance from the start.

F is pooled over pixels, and the commonest patch, nothing but free cells, has a large part of
them: a memory that knows little else can have a high F. Early questions are about little, and
places near the start are seen first. Apart, the parts say where a memory fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.tasks.base import Batch
from mgmem.tasks.seeds import Ints

# Ranks at which the parts end: the commonest patch, then two handfuls, and the long tail.
_RANKS = (1, 10, 30)
_RINGS = 6


@dataclass(frozen=True)
class Part:
    """Scores of some of the queries, or of some of the pixels of all."""

    name: str
    share: float
    """Share of all queries; of the pixels to be marked, where parts are places."""
    precision: float
    recall: float
    f: float


class Parts(Protocol):
    """Adds up answers of the first reader, part by part."""

    @property
    def title(self) -> str:
        """What the parts are, as the head of their column."""

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int) -> None:
        """answers: logits, (Q, B, 1, grid, grid) first; the batch begins at step ``start``."""

    def rows(self) -> list[Part]:
        """The parts in their natural order."""


class PatchParts:
    """Patches ranked by how often they were asked for."""

    title = "patches by how often asked"

    def __init__(self) -> None:
        self._patches: list[npt.NDArray[np.uint8]] = []
        self._counts: list[Ints] = []

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int) -> None:
        """The batch's queries are (Q, B, 4, k, k)."""
        walls = batch.queries[0][:, :, 1].flatten(2).flatten(0, 1)
        counted = _counted(batch).flatten()
        self._counts.append(_counts(answers, batch).flatten(0, 1)[counted].cpu().numpy())
        self._patches.append(np.packbits(walls[counted].bool().cpu().numpy(), axis=1))

    def rows(self) -> list[Part]:
        """The commonest patch first."""
        counts, patches = np.concatenate(self._counts), np.concatenate(self._patches)
        _, patch, asked = np.unique(patches, axis=0, return_inverse=True, return_counts=True)
        rank = np.empty(len(asked), np.int64)
        rank[np.argsort(-asked, kind="stable")] = np.arange(len(asked))
        ranks, result, start = rank[patch.reshape(-1)], [], 0
        for stop in (*(part for part in _RANKS if part < len(asked)), len(asked)):
            chosen = counts[(ranks >= start) & (ranks < stop)]
            name = f"{stop}" if stop == start + 1 else f"{start + 1} to {stop}"
            result.append(_part(name, len(chosen) / len(counts), chosen.sum(0)))
            start = stop
        return result


class AgeParts:
    """Questions by how many steps the memory has been written when they are asked."""

    title = "asked after step"

    def __init__(self) -> None:
        self._sums: dict[int, Ints] = {}

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int) -> None:
        """Queries of a batch are asked of all its sequences at the same steps."""
        counts, counted = _counts(answers, batch), _counted(batch)
        for row, time in enumerate(batch.times.tolist()):
            chosen = counts[row][counted[row]]
            added = np.array([*chosen.sum(0).tolist(), len(chosen)])
            self._sums[start + time + 1] = self._sums.get(start + time + 1, 0) + added

    def rows(self) -> list[Part]:
        """The youngest memory first."""
        total = sum(int(sums[3]) for sums in self._sums.values())
        ages = sorted(self._sums.items())
        return [_part(f"{age:,}", sums[3] / max(total, 1), sums[:3]) for age, sums in ages]


class DistanceParts:
    """Pixels by how far they are from the start, in the larger of rows and columns."""

    title = "cells from the start"

    def __init__(self, grid: int, reach: int) -> None:
        """Answers are grid x grid around the start; the agent gets ``reach`` cells away."""
        offset = torch.arange(grid) - grid // 2
        self._ring = torch.maximum(offset[:, None].abs(), offset.abs()).flatten()
        step = -(-(reach + 1) // _RINGS)
        self._edges = [*range(0, reach + 1, step), reach + 1]
        self._sums = np.zeros((len(self._edges) - 1, 3), np.int64)

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int) -> None:
        """A false mark beyond the agent's reach counts for the outermost part."""
        said, true = _pixels(answers, batch)
        ring = torch.bucketize(self._ring, torch.tensor(self._edges[1:-1]), right=True)
        for part in range(len(self._sums)):
            here = (ring == part).to(said.device)
            columns = ((said & true) & here, said & here, true & here)
            self._sums[part] += [int(column.sum()) for column in columns]

    def rows(self) -> list[Part]:
        """The nearest first."""
        total, rows = max(1, int(self._sums[:, 2].sum())), []
        for low, high, sums in zip(self._edges, self._edges[1:], self._sums, strict=False):
            name = f"{low}" if high == low + 1 else f"{low} to {high - 1}"
            rows.append(_part(name, sums[2] / total, sums))
        return rows


def _pixels(answers: tuple[Tensor, ...], batch: Batch) -> tuple[Tensor, Tensor]:
    """Pixels said and true, (Q, B, pixels) each; none where a query does not count."""
    said, true = (answers[0].detach() >= 0).flatten(2), (batch.targets[0] >= 0.5).flatten(2)
    counted = _counted(batch).unsqueeze(2)
    return said & counted, true & counted


def _counted(batch: Batch) -> Tensor:
    """(Q, B): which queries count."""
    if batch.weight is None:
        shape = batch.queries[0].shape[:2]
        return torch.ones(shape, dtype=torch.bool, device=batch.inputs.device)
    return batch.weight[0].bool()


def _counts(answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
    """(Q, B, 3): hits, pixels said, pixels true."""
    said, true = _pixels(answers, batch)
    return torch.stack([(said & true).sum(2), said.sum(2), true.sum(2)], 2)


def _part(name: str, share: float, sums: Ints) -> Part:
    hits, said, true = (int(value) for value in sums)
    return Part(
        name,
        float(share),
        precision=hits / max(said, 1),
        recall=hits / max(true, 1),
        f=2 * hits / max(said + true, 1),
    )
