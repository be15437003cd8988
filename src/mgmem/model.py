"""What every trainable model is, and the one call that puts a batch to it.

Training, evaluation and pictures know models only as this: a multigrid memory with its readers, an
encoder-decoder and every baseline are ``Model``s, and answer ``ask(model, batch, state)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError


class State(Protocol):
    """What a model keeps between calls: opaque, but it can be cut off and saved."""

    def detach(self) -> State:
        """The same values, cut off from the graph that made them."""

    def tensors(self) -> dict[str, Tensor]:
        """All values by name; ``model.state_from_tensors`` is the way back."""


class Asked(Protocol):
    """What a batch says to a model; ``mgmem.tasks.Batch`` is one, and documents the shapes."""

    @property
    def inputs(self) -> Tensor:
        """(T, B, *input)."""

    @property
    def queries(self) -> tuple[Tensor, ...]:
        """One (Q, B, *query) per reader."""

    @property
    def times(self) -> Tensor:
        """(Q,), or (Q, B) where every sequence is asked at steps of its own."""

    @property
    def reset(self) -> Tensor | None:
        """(T, B) bool, or None."""

    @property
    def lengths(self) -> Tensor | None:
        """(B,) int64, or None."""


class Model(nn.Module):
    """Writes sequences into a memory and answers queries about them.

    A subclass has ``forward(inputs, state=None, *, queries, times, reset=None, lengths=None)``,
    which gives one (Q, B, *answer) tensor of logits per reader, and the state to go on from.
    """

    @property
    def cells(self) -> int:
        """Memory cells per sequence."""
        raise NotImplementedError

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Any:
        """An empty memory for ``batch`` sequences."""
        raise NotImplementedError

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> Any:
        """The inverse of ``state.tensors()``."""
        raise NotImplementedError


def ask(model: nn.Module, batch: Asked, state: Any = None) -> tuple[tuple[Tensor, ...], Any]:
    """Write a batch's inputs and answer its queries: one (Q, B, *answer) per reader, and the state.

    ``model`` is a `Model`, or one wrapped for several processes.
    """
    answers, state = model(
        batch.inputs,
        state,
        queries=batch.queries,
        times=batch.times,
        reset=batch.reset,
        lengths=batch.lengths,
    )
    return answers, state


def at_times(sequence: Tensor, times: Tensor) -> Tensor:
    """(T, B, ...) at the steps of times (Q,) or (Q, B): (Q, B, ...); -1 is the last step."""
    steps, batch = sequence.shape[:2]
    # Indexing would do, but its gradient is a scatter, six times as slow as this one's on a CPU.
    times = torch.where(times < 0, times + steps, times)
    if times.dim() == 1:
        return sequence.index_select(0, times)
    places = times * batch + torch.arange(batch, device=times.device)
    return sequence.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, times.shape)


def each_reader(queries: Sequence[Tensor], readers: int) -> None:
    """An error unless there is one query tensor for each reader."""
    if len(queries) != readers:
        raise UsageError(f"{len(queries)} query tensors for {readers} reader(s): give one each")
