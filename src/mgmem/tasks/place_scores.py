"""Recall's error apart for what was seen early and late.

What came first has to be kept the longest: it is the first to fade.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mgmem.tasks.base import Batch


@dataclass(frozen=True)
class PlaceRow:
    """Error of the questions that name the item at one place of the sequence."""

    place: int
    """From 1, the item that came first."""
    share: float
    """Share of all questions."""
    error: float
    """Rate of wrong bits."""


class PlaceScore:
    """Adds up answers by the place of the item that a question names."""

    def __init__(self) -> None:
        self._places: list[Tensor] = []
        self._errors: list[Tensor] = []

    def add(self, answers: tuple[Tensor, ...], batch: Batch, start: int = 0) -> None:
        """answers: logits, one (Q, B, 1, 3, 3); the batch's inputs are (L, B, 1, 3, 3), whole."""
        named = batch.inputs[None] == batch.queries[0][:, None]
        place = named.flatten(3).all(3).int().argmax(1)
        wrong = (answers[0].detach() >= 0) != (batch.targets[0] >= 0.5)
        self._places.append(place.flatten().cpu())
        self._errors.append(wrong.float().flatten(2).mean(2).flatten().cpu())

    def rows(self) -> list[PlaceRow]:
        """The oldest first; places that nothing asked for are left out."""
        places, errors = torch.cat(self._places), torch.cat(self._errors)
        result = []
        for place in places.unique().tolist():
            chosen = errors[places == place]
            result.append(PlaceRow(place + 1, len(chosen) / len(errors), float(chosen.mean())))
        return result
