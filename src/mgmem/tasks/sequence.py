"""Episodes whose questions all come after the last input: sorting and recall."""

from __future__ import annotations

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, check_piece, check_times


class SequenceEpisodes:
    """B short sequences held as tensors."""

    def __init__(self, inputs: Tensor, queries: Tensor, targets: Tensor, first: int) -> None:
        """inputs: (L, B, C, H, W); queries: (Q, B, C, H, W); targets: (Q, B, ...).

        first: number of the first episode.
        """
        self._inputs = inputs
        self._queries = queries
        self._targets = targets
        self._first = first

    @property
    def length(self) -> int:
        """Number of inputs of each sequence."""
        return len(self._inputs)

    def batch(self, start: int, stop: int, times: Tensor | None = None) -> Batch:
        """Steps start, ..., stop - 1; all queries if the sequence ends there, else none.

        times can only be what it is by itself: stop - start - 1 for every query.
        """
        check_piece(start, stop, self.length)
        asked = len(self._queries) if stop == self.length else 0
        natural = torch.full((asked,), stop - start - 1, dtype=torch.int64)
        if times is not None and not torch.equal(check_times(times, stop - start), natural):
            raise UsageError(
                f"query times {times.tolist()} were given, but this task asks its {asked} "
                f"queries after step {stop - start - 1}: leave the times out"
            )
        return Batch(
            inputs=self._inputs[start:stop],
            reset=None,
            times=natural,
            queries=(self._queries[:asked],),
            targets=(self._targets[:asked],),
            episode=self._first + torch.arange(self._inputs.shape[1]),
        )
