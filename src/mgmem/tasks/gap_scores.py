"""Sorting's error apart for items of close and of distant priorities.

Two items of nearly the same priority are hard to tell apart, and their answers become a blend of
both; items far from all others are not confused with any.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mgmem.tasks.base import Batch

# Where the parts end, as shares of the priorities' spread.
_PARTS = (0.005, 0.01, 0.02, 0.04, 0.08, 2.0)


@dataclass(frozen=True)
class GapRow:
    """Error of the items whose nearest priority is this far away."""

    low: float
    high: float
    share: float
    """Share of all items."""
    error: float
    """Rate of wrong bits."""


class GapScore:
    """Adds up answers by the distance of an item's priority to the nearest other one."""

    def __init__(self, spread: float = 1.0) -> None:
        self._edges = spread * torch.tensor(_PARTS)
        self._gaps: list[Tensor] = []
        self._errors: list[Tensor] = []

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int = 0) -> None:
        """answers: logits, one (L, B, 1, 3, 3); the batch's inputs are (L, B, 2, 3, 3), whole."""
        priorities = batch.inputs[:, :, 1, 0, 0].sort(0).values
        between = priorities.diff(dim=0)
        endless = between.new_full((1, between.shape[1]), torch.inf)
        nearest = torch.minimum(torch.cat([endless, between]), torch.cat([between, endless]))
        wrong = (answers[0].detach() >= 0) != (batch.targets[0] >= 0.5)
        self._gaps.append(nearest.flatten().cpu())
        self._errors.append(wrong.float().flatten(2).mean(2).flatten().cpu())

    def rows(self) -> list[GapRow]:
        """The closest first; parts without an item are left out."""
        gaps, errors = torch.cat(self._gaps), torch.cat(self._errors)
        part = torch.bucketize(gaps, self._edges[:-1], right=True)
        result, low = [], 0.0
        for index, high in enumerate(self._edges.tolist()):
            chosen = errors[part == index]
            if len(chosen):
                share = len(chosen) / len(errors)
                result.append(GapRow(low, high, share, float(chosen.mean())))
            low = high
        return result
