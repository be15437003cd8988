"""Priority sort: nine-bit items arrive with priorities and are wanted in order of priority."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import ERROR, Batch, Metric, Reads, Shapes
from mgmem.tasks.losses import bits_loss
from mgmem.tasks.scores import BitErrorScore
from mgmem.tasks.seeds import SeedStream, below, distinct, draw
from mgmem.tasks.sequence import SequenceEpisodes

# Priorities come from a grid of this many values, which float32 holds exactly: never two alike.
_PRIORITIES = 2**20


@dataclass(frozen=True)
class PrioritySort:
    """L random items, to be put out in increasing order of priority.

    Input: channel 0 the bits (0 or 1) as a 3x3 patch, channel 1 the priority, in (-spread, spread)
    and constant over the patch. Then L empty queries, each wanting the next item.

    Only the order counts, and the paper does not say how priorities are drawn, nor how far they
    reach. "uniform": each by itself. With a spread of 1, half of twenty items have a neighbour
    closer than 0.04: that is what is hard to learn. "even": L evenly spaced ones, shuffled.
    """

    length: int = 20
    spread: float = 1.0
    priorities: Literal["uniform", "even"] = "uniform"

    def __post_init__(self) -> None:
        if self.length < 2:
            raise UsageError(f"the length is {self.length}: give at least 2 items to sort")
        if not self.spread > 0:
            raise UsageError(f"the spread of priorities is {self.spread}: give one above 0")
        if self.priorities not in ("uniform", "even"):
            raise UsageError(f"priorities are {self.priorities!r}: choose uniform or even")

    @property
    def name(self) -> str:
        """sort."""
        return "sort"

    @property
    def reads(self) -> Reads:
        """Answers come after the last item."""
        return "after"

    @property
    def shapes(self) -> Shapes:
        """Input and query (2, 3, 3), answer (1, 3, 3)."""
        return Shapes(input=(2, 3, 3), queries=((2, 3, 3),), answers=((1, 3, 3),))

    @property
    def episode_length(self) -> int:
        """Number of items."""
        return self.length

    @property
    def metric(self) -> Metric:
        """Rate of wrong bits."""
        return ERROR

    def practice(self, length: int, questions: int) -> PrioritySort:
        """The same task with another number of items."""
        return replace(self, length=length)

    def episodes(self, stream: SeedStream, first: int, count: int) -> SequenceEpisodes:
        """Fresh items and priorities."""
        keys = stream.keys(first, count)
        bits = below(draw(keys, "sort bits", np.arange(self.length * 9)[:, None]), 2)
        items = bits.reshape(self.length, 9, count).transpose(0, 2, 1)
        levels = self.length if self.priorities == "even" else _PRIORITIES
        ranks = distinct(keys, "sort priorities", self.length, levels)
        inputs = np.empty((self.length, count, 2, 9), np.float32)
        inputs[:, :, 0] = items
        inputs[:, :, 1] = self.spread * ((2 * ranks + 1) / levels - 1)[:, :, None]
        ordered = np.take_along_axis(items, ranks.argsort(axis=0)[:, :, None], axis=0)
        targets = ordered.astype(np.float32).reshape(self.length, count, 1, 3, 3)
        return SequenceEpisodes(
            inputs=torch.from_numpy(inputs.reshape(self.length, count, 2, 3, 3)),
            queries=torch.zeros(self.length, count, 2, 3, 3),
            targets=torch.from_numpy(targets),
            first=first,
        )

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Sigmoid cross-entropy summed over nine bits, mean over items."""
        return bits_loss(answers, batch)

    def new_score(self) -> BitErrorScore:
        """Error per bit (the key metric) and per item."""
        return BitErrorScore()
