"""Recall and sort with MNIST images: remember pictures, answer with their classes.

Building a task needs no data; making its episodes does. A sequence never holds an image twice,
and a split draws from its own images only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import ERROR, Batch, Metric, Reads, Shapes, check_questions
from mgmem.tasks.distortion import distorted
from mgmem.tasks.losses import class_loss
from mgmem.tasks.mnist_data import VALID_IMAGES, load_digits
from mgmem.tasks.scores import ClassErrorScore
from mgmem.tasks.seeds import Ints, Keys, SeedStream, Split, distinct
from mgmem.tasks.sequence import SequenceEpisodes

CLASSES = 10


@dataclass(frozen=True)
class _DigitTask:
    """What the two tasks share."""

    length: int
    distort: bool = False
    """Training digits are turned, scaled and shifted a little; those of other splits never are."""

    def __post_init__(self) -> None:
        if not 2 <= self.length <= VALID_IMAGES:
            raise UsageError(f"the length is {self.length}: give 2 to {VALID_IMAGES} images")

    @property
    def reads(self) -> Reads:
        """Questions come after the last image."""
        return "after"

    @property
    def shapes(self) -> Shapes:
        """Input and query (1, 28, 28), answer (10,)."""
        return Shapes(input=(1, 28, 28), queries=((1, 28, 28),), answers=((CLASSES,),))

    @property
    def episode_length(self) -> int:
        """Number of images."""
        return self.length

    @property
    def metric(self) -> Metric:
        """Rate of wrong classes."""
        return ERROR

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Softmax cross-entropy, mean over answers."""
        return class_loss(answers, batch)

    def new_score(self) -> ClassErrorScore:
        """Rate of wrong classes."""
        return ClassErrorScore()

    def _gather(
        self, images: npt.NDArray[np.uint8], numbers: Ints, split: Split, keys: Keys
    ) -> Tensor:
        """Images by number (L, B), scaled to [0, 1]: (L, B, 1, 28, 28) float32."""
        chosen = torch.from_numpy(images[numbers]).unsqueeze(2).float().div_(255)
        return distorted(chosen, keys) if self.distort and split == "train" else chosen


@dataclass(frozen=True)
class MnistRecall(_DigitTask):
    """L images, then one of the first L - 1 again: the class of the image that followed it."""

    length: int = 10
    questions: int = 1
    """Different questions about each sequence; the task proper asks one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_questions(self.questions, self.length)

    @property
    def name(self) -> str:
        """mnist-recall."""
        return "mnist-recall"

    def practice(self, length: int, questions: int) -> MnistRecall:
        """The same task with another number of images, and of questions about each sequence."""
        return replace(self, length=length, questions=min(questions, length - 1))

    def episodes(self, stream: SeedStream, first: int, count: int) -> SequenceEpisodes:
        """Fresh draws from the images of the stream's split."""
        keys = stream.keys(first, count)
        digits = load_digits(stream.split)
        numbers = distinct(keys, "images", self.length, len(digits))
        inputs = self._gather(digits.images, numbers, stream.split, keys)
        named = distinct(keys, "image recall question", self.questions, self.length - 1)
        column = np.arange(count)
        return SequenceEpisodes(
            inputs=inputs,
            queries=inputs[named, column],
            targets=torch.from_numpy(digits.labels[numbers[named + 1, column]]),
            first=first,
        )


@dataclass(frozen=True)
class MnistSort(_DigitTask):
    """L images, then L empty queries: their classes in increasing order."""

    length: int = 20

    @property
    def name(self) -> str:
        """mnist-sort."""
        return "mnist-sort"

    def practice(self, length: int, questions: int) -> MnistSort:
        """The same task with another number of images."""
        return replace(self, length=length)

    def episodes(self, stream: SeedStream, first: int, count: int) -> SequenceEpisodes:
        """Fresh draws from the images of the stream's split."""
        keys = stream.keys(first, count)
        digits = load_digits(stream.split)
        numbers = distinct(keys, "images", self.length, len(digits))
        return SequenceEpisodes(
            inputs=self._gather(digits.images, numbers, stream.split, keys),
            queries=torch.zeros(self.length, count, 1, 28, 28),
            targets=torch.from_numpy(np.sort(digits.labels[numbers], axis=0)),
            first=first,
        )
