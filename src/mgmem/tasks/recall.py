"""Associative recall: after a list of nine-bit items, name one and ask for its successor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import ERROR, Batch, Metric, Reads, Shapes, check_questions
from mgmem.tasks.losses import bits_loss
from mgmem.tasks.scores import BitErrorScore
from mgmem.tasks.seeds import SeedStream, distinct
from mgmem.tasks.sequence import SequenceEpisodes


@dataclass(frozen=True)
class AssociativeRecall:
    """L different random items as 3x3 patches, then one of the first L - 1 again.

    Wanted is the item that followed it.
    """

    length: int = 10
    questions: int = 1
    """Different questions about each sequence; the task proper asks one."""

    def __post_init__(self) -> None:
        if not 2 <= self.length <= 2**9:
            raise UsageError(
                f"the length is {self.length}: give 2 to 512, the number of different items"
            )
        check_questions(self.questions, self.length)

    @property
    def name(self) -> str:
        """recall."""
        return "recall"

    @property
    def reads(self) -> Reads:
        """The question comes after the last item."""
        return "after"

    @property
    def shapes(self) -> Shapes:
        """Input, query and answer (1, 3, 3)."""
        return Shapes(input=(1, 3, 3), queries=((1, 3, 3),), answers=((1, 3, 3),))

    @property
    def episode_length(self) -> int:
        """Number of items."""
        return self.length

    @property
    def metric(self) -> Metric:
        """Rate of wrong bits."""
        return ERROR

    def practice(self, length: int, questions: int) -> AssociativeRecall:
        """The same task with another number of items, and of questions about each sequence."""
        return replace(self, length=length, questions=min(questions, length - 1))

    def episodes(self, stream: SeedStream, first: int, count: int) -> SequenceEpisodes:
        """Fresh items and a question."""
        keys = stream.keys(first, count)
        numbers = distinct(keys, "recall items", self.length, 2**9)
        bits = (numbers[:, :, None] >> np.arange(9)) & 1
        items = bits.astype(np.float32).reshape(self.length, count, 1, 3, 3)
        named = distinct(keys, "recall question", self.questions, self.length - 1)
        column = np.arange(count)
        return SequenceEpisodes(
            inputs=torch.from_numpy(items),
            queries=torch.from_numpy(items[named, column]),
            targets=torch.from_numpy(items[named + 1, column]),
            first=first,
        )

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Sigmoid cross-entropy summed over nine bits, mean over sequences."""
        return bits_loss(answers, batch)

    def new_score(self) -> BitErrorScore:
        """Error per bit (the key metric) and per item."""
        return BitErrorScore()
