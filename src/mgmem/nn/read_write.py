"""A memory with its readers as one model: sequences and queries in, answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import Model, at_times, each_reader
from mgmem.nn.fit import Fit, fitted
from mgmem.nn.inputs import as_queries
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.reader import MultigridReader
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid


class ReadWrite(Model):
    """One writer, any number of readers.

    Args:
        memory: the writer.
        readers: one per kind of query.
        heads: for each reader what follows it, such as a linear layer over the flattened grid.
        fit: how observations become the memory's input; see ``mgmem.nn.fit``.
        query_fits: likewise for each reader; None: as ``fit``.
    """

    def __init__(
        self,
        memory: MultigridMemory,
        readers: Sequence[MultigridReader],
        heads: Sequence[nn.Module] | None = None,
        fit: Fit = "as is",
        query_fits: Sequence[Fit] | None = None,
    ) -> None:
        super().__init__()
        if heads is not None and len(heads) != len(readers):
            raise UsageError(f"{len(heads)} heads for {len(readers)} reader(s): give one each")
        if memory.batch_first:
            raise UsageError("a memory with batch_first: here sequences are (time, batch, ...)")
        self.memory = memory
        self.readers = nn.ModuleList(readers)
        self.heads = nn.ModuleList(heads or [nn.Identity() for _ in readers])
        self.fit = fit
        self.query_fits = tuple(query_fits or [fit] * len(readers))

    def forward(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        queries: Tensor | Sequence[Tensor],
        times: Tensor,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], MemoryState]:
        """Write ``inputs``, then answer.

        Args:
            inputs: (time, batch, channels, *space).
            state: to go on from, or None.
            queries: for each reader (queries, batch, channels, *space).
            times: (queries,) int64, the step after which each query is asked; or
                (queries, batch), where every sequence has steps of its own.
            reset: (time, batch) bool; lengths: (batch,); see ``MultigridMemory.forward``.

        Returns:
            for each reader (queries, batch, *answer) logits; and the state to go on.
        """
        queries = as_queries(queries)
        each_reader(queries, len(self.readers))
        h, state = self.write(inputs, state, reset=reset, lengths=lengths)
        # Taken once for all readers: the gradient into the memory then comes back in one piece.
        seen = h if _is_all(times, h) else tuple(_at(layer, times) for layer in h)
        return self.read(queries, seen), state

    def write(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """Write ``inputs``: every layer's hidden states over time, and the state to go on."""
        memory = self.memory
        x = fitted(inputs, memory.input, memory.base, self.fit)
        return memory(x, state, reset=reset, lengths=lengths)

    def read(self, queries: Sequence[Tensor], seen: Sequence[Pyramid]) -> tuple[Tensor, ...]:
        """Answer ``queries`` about what was written: one (queries, batch, *answer) per reader.

        seen: every layer's hidden states, (queries, batch, channels, *space) a level: those that
        ``write`` gave at the steps after which is asked.
        """
        readers = cast("list[MultigridReader]", list(self.readers))
        parts = zip(readers, self.heads, self.query_fits, queries, strict=True)
        return tuple(
            head(reader(fitted(query, reader.input, reader.base, fit), seen))
            for reader, head, fit, query in parts
        )

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> MemoryState:
        """An empty memory for ``batch`` sequences."""
        return self.memory.initial_state(batch, device, dtype)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> MemoryState:
        """The inverse of ``state.tensors()``."""
        return self.memory.state_from_tensors(tensors)

    @property
    def cells(self) -> int:
        """Memory cells per sequence."""
        return self.memory.cells


def _at(layer: Pyramid, times: Tensor) -> Pyramid:
    return layer.map(lambda grid: at_times(grid, times))


def _is_all(times: Tensor, h: Sequence[Pyramid]) -> bool:
    """Whether a query is asked after the only step, as it is when acting step by step."""
    if times.shape != (1,) or not times.is_cpu or torch.compiler.is_compiling():
        return False
    return h[0].grids[0].shape[0] == 1 and times.dtype == torch.int64 and times.item() == 0
