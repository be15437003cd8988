"""Precision, recall and F over pixels; error rates per element and per item; 95% intervals.

Every metric is a ratio of two counts summed over episodes. Pixels of one episode are far from
independent, so the interval treats the episode as the unit: the delta method gives the variance
of the ratio over episodes, and a Wilson interval with the sample size that such a variance
corresponds to keeps the ends within 0 and 1, and honest when not a single error was seen.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Estimate

Counts = npt.NDArray[np.int64]

_NORMAL_95 = 1.959963984540054


def ratio_estimate(parts: Counts, wholes: Counts) -> Estimate:
    """sum(parts) / sum(wholes) with a 95% interval; parts, wholes: (episodes,).

    Without any whole the value is 0 and the interval everything from 0 to 1.
    """
    whole = float(wholes.sum())
    if whole == 0:
        return Estimate(0.0, 0.0, 1.0)
    value = float(parts.sum()) / whole
    low, high = _wilson(value, _effective_size(value, parts, wholes))
    return Estimate(value, low, high)


class _Tally:
    """Integer counts per episode, whatever the pieces in which episodes arrive."""

    def __init__(self) -> None:
        self._episodes: list[Counts] = []
        self._counts: list[Counts] = []
        self._unnamed = 0

    def add(self, counts: Counts, episode: Tensor | None) -> None:
        """counts: (columns, B)."""
        size = counts.shape[1]
        if episode is None:  # every sequence stands for itself
            names = -1 - self._unnamed - np.arange(size)
            self._unnamed += size
        else:
            names = episode.cpu().numpy()
        self._episodes.append(names)
        self._counts.append(counts)

    def per_episode(self) -> Counts:
        """(columns, episodes)."""
        if not self._counts:
            raise UsageError("nothing has been scored yet: add at least one batch")
        names, index = np.unique(np.concatenate(self._episodes), return_inverse=True)
        counts = np.concatenate(self._counts, axis=1)
        totals = np.zeros((len(names), len(counts)), np.int64)
        np.add.at(totals, index, counts.T)
        return totals.T


class PixelScore:
    """Precision, recall and F at probability >= 0.5, pooled over all pixels of all queries.

    With several readers the plain names pool them all, and "f/9x9" is that of the reader
    called "9x9".
    """

    def __init__(self, readers: tuple[str, ...]) -> None:
        self._readers = readers
        self._tally = _Tally()

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """answers: logits, one (Q, B, *answer) per reader."""
        counts = []
        for reader, (answer, target) in enumerate(zip(answers, batch.targets, strict=True)):
            said = (answer.detach() >= 0).flatten(2)
            true = (target >= 0.5).flatten(2)
            if batch.weight is not None:
                counted = batch.weight[reader].bool().unsqueeze(2)
                said, true = said & counted, true & counted
            hits = (said & true).sum((0, 2))
            counts += [hits, said.sum((0, 2)) - hits, true.sum((0, 2)) - hits]
        self._tally.add(np.stack([count.cpu().numpy() for count in counts]), batch.episode)

    def result(self) -> dict[str, Estimate]:
        """Keys precision, recall and f; also name/reader for each of several readers."""
        per_reader = self._tally.per_episode().reshape(len(self._readers), 3, -1)
        result = _pixel_estimates(per_reader.sum(0), "")
        if len(self._readers) > 1:
            for name, counts in zip(self._readers, per_reader, strict=True):
                result |= _pixel_estimates(counts, f"/{name}")
        return result


class BitErrorScore:
    """Rate of wrong bits (error) and of answers with any wrong bit (item_error)."""

    def __init__(self) -> None:
        self._tally = _Tally()

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """answers: logits, one (Q, B, *answer) per reader."""
        for reader, (answer, target) in enumerate(zip(answers, batch.targets, strict=True)):
            wrong = ((answer.detach() >= 0) != (target >= 0.5)).flatten(2)
            self._tally.add(_error_counts(wrong, batch.weight, reader), batch.episode)

    def result(self) -> dict[str, Estimate]:
        """Keys error and item_error."""
        return _error_estimates(self._tally.per_episode())


class ClassErrorScore:
    """Rate of wrong classes. An item has one class, so error and item_error are the same."""

    def __init__(self) -> None:
        self._tally = _Tally()

    def add(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """answers: logits, one (Q, B, classes) per reader."""
        for reader, (answer, target) in enumerate(zip(answers, batch.targets, strict=True)):
            wrong = (answer.detach().argmax(2) != target).unsqueeze(2)
            self._tally.add(_error_counts(wrong, batch.weight, reader), batch.episode)

    def result(self) -> dict[str, Estimate]:
        """Keys error and item_error."""
        return _error_estimates(self._tally.per_episode())


def _pixel_estimates(counts: Counts, suffix: str) -> dict[str, Estimate]:
    """counts: (hits, false alarms, misses) x episodes."""
    hits, alarms, misses = counts
    return {
        f"precision{suffix}": ratio_estimate(hits, hits + alarms),
        f"recall{suffix}": ratio_estimate(hits, hits + misses),
        f"f{suffix}": ratio_estimate(2 * hits, 2 * hits + alarms + misses),
    }


def _error_counts(wrong: Tensor, weight: Tensor | None, reader: int) -> Counts:
    """(wrong elements, elements, wrong items, items) x B from wrong: (Q, B, elements) bool."""
    counted = wrong.new_ones(wrong.shape[:2]) if weight is None else weight[reader].bool()
    wrong = wrong & counted.unsqueeze(2)
    items = counted.sum(0)
    columns = [wrong.sum((0, 2)), items * wrong.shape[2], wrong.any(2).sum(0), items]
    return np.stack([column.cpu().numpy() for column in columns])


def _error_estimates(counts: Counts) -> dict[str, Estimate]:
    return {
        "error": ratio_estimate(counts[0], counts[1]),
        "item_error": ratio_estimate(counts[2], counts[3]),
    }


def _effective_size(value: float, parts: Counts, wholes: Counts) -> float:
    """Number of independent trials whose ratio would vary as much as this one over episodes."""
    episodes = int((wholes > 0).sum())
    if episodes < 2:
        return 1.0
    residuals = parts - value * wholes
    variance = episodes / (episodes - 1) * float((residuals**2).sum()) / float(wholes.sum()) ** 2
    spread = value * (1 - value)
    if variance < 1e-15 or spread < 1e-15:  # all episodes agree: each is one trial
        return float(episodes)
    return spread / variance


def _wilson(value: float, size: float) -> tuple[float, float]:
    square = _NORMAL_95**2
    centre = (value + square / (2 * size)) / (1 + square / size)
    half = _NORMAL_95 / (1 + square / size)
    half *= math.sqrt(value * (1 - value) / size + square / (4 * size**2))
    return max(0.0, min(value, centre - half)), min(1.0, max(value, centre + half))
