"""Wrong answers about stories: per question, per word, and task by task."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Estimate
from mgmem.tasks.scores import Counts, ratio_estimate

NUMBERED = 1_000_000
"""A story of task k has a number from k times this on."""

FAILED = 0.05
"""Error from which on a task counts as failed, as bAbI's authors have it."""


class StoryScore:
    """Errors of stories that are numbered by task.

    The words of one answer are wanted one step after another; a question is wrong if one of them
    is.
    """

    def __init__(self) -> None:
        self._task: list[Counts] = []
        self._counts: list[Counts] = []

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """answers: one (Q, B, words) tensor of logits."""
        if batch.episode is None or batch.weight is None:
            raise UsageError("a batch of stories says which they are, and which answers count")
        counted = batch.weight[0].bool().cpu().numpy()
        wrong = (answers[0].detach().argmax(2) != batch.targets[0]).cpu().numpy() & counted
        begins = counted & _begins(batch.times.cpu().numpy())
        # A wrong word counts for its question once: the first wrong one since the question began.
        number = begins.cumsum(0)
        wrong_questions = np.zeros(wrong.shape[1], np.int64)
        for column in range(wrong.shape[1]):
            wrong_questions[column] = len(np.unique(number[wrong[:, column], column]))
        rows = (wrong_questions, begins.sum(0), wrong.sum(0), counted.sum(0))
        self._counts.append(np.stack(rows))
        self._task.append(batch.episode.cpu().numpy() // NUMBERED)

    def by_task(self) -> dict[int, Counts]:
        """Of each task that was scored: wrong questions, questions, wrong words, words.

        (4, stories) each.
        """
        if not self._counts:
            raise UsageError("nothing has been scored yet: add at least one batch")
        task, counts = np.concatenate(self._task), np.concatenate(self._counts, 1)
        return {number: counts[:, task == number] for number in np.unique(task).tolist()}

    def result(self) -> dict[str, Estimate]:
        """Keys error and word_error (means over tasks), failed (tasks), error/1, error/2, ..."""
        by_task = self.by_task()
        errors = {k: ratio_estimate(part[0], part[1]) for k, part in by_task.items()}
        words = [ratio_estimate(part[2], part[3]) for part in by_task.values()]
        return {
            "error": _mean(list(errors.values())),
            "word_error": _mean(words),
            "failed": _failed(list(errors.values())),
            **{f"error/{number}": error for number, error in errors.items()},
        }


def _begins(times: Counts) -> Counts:
    """(Q, B) bool: whether an answer does not go on from the word before."""
    return np.concatenate([np.ones_like(times[:1], bool), np.diff(times, axis=0) != 1])


def _mean(parts: list[Estimate]) -> Estimate:
    """The mean of independent estimates, its interval from theirs (Zou and Donner 2008)."""
    value = sum(part.value for part in parts) / len(parts)
    below = math.sqrt(sum((part.value - part.low) ** 2 for part in parts)) / len(parts)
    above = math.sqrt(sum((part.high - part.value) ** 2 for part in parts)) / len(parts)
    return Estimate(value, value - below, value + above)


def _failed(errors: list[Estimate]) -> Estimate:
    """How many tasks failed; the ends count those that did for certain, and those that may have."""
    ends = zip(*((e.value, e.low, e.high) for e in errors), strict=True)
    return Estimate(*(float(sum(error > FAILED for error in end)) for end in ends))
