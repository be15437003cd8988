"""Losses per query, averaged over the queries that count."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

from mgmem.tasks.base import Batch


def bits_loss(answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
    """Sigmoid cross-entropy, summed over the bits of an answer, mean over counted queries.

    answers: logits, one (Q, B, *answer) per reader, as batch.targets.
    """
    losses = [
        functional.binary_cross_entropy_with_logits(answer.float(), target, reduction="none")
        .flatten(2)
        .sum(2)
        for answer, target in zip(answers, batch.targets, strict=True)
    ]
    return _mean_over_counted(losses, batch)


def class_loss(answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
    """Softmax cross-entropy, mean over counted queries.

    answers: logits, one (Q, B, classes) per reader; batch.targets: (Q, B) int64 each.
    """
    losses = [
        functional.cross_entropy(
            answer.float().flatten(0, 1), target.flatten(), reduction="none"
        ).view(target.shape)
        for answer, target in zip(answers, batch.targets, strict=True)
    ]
    return _mean_over_counted(losses, batch)


def _mean_over_counted(losses: list[Tensor], batch: Batch) -> Tensor:
    """Mean of the (Q, B) losses of all readers; 0, with zero gradients, when none counts."""
    stacked = torch.stack(losses)
    if batch.weight is not None:
        stacked = stacked * batch.weight
    return stacked.sum() / batch.counted().clamp(min=1)
