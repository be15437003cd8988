"""What a flat sequence core is, and what all of them share.

A core maps vectors to vectors over time, `(T, B, input_size) -> (T, B, output_size)`, and hands
its state in and out. `FlatModel` turns any core into a model that answers queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from mgmem.errors import UsageError


class CoreState(Protocol):
    """State of a core: opaque to everybody else, but it can be cut off and saved."""

    def detach(self) -> CoreState:
        """The same values, cut off from the graph that made them."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """All values by name, for a checkpoint."""
        ...


class SequenceCore(Protocol):
    """A module over vectors; DNC, PlainLSTM and CausalTransformer are cores."""

    input_size: int
    output_size: int

    @property
    def cells(self) -> int:
        """Memory cells per sequence."""
        ...

    def __call__(
        self, x: Tensor, state: Any = None, reset: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """x (T, B, input_size), reset (T, B) bool or None -> (T, B, output_size), state."""
        ...

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Any:
        """The state before the first step."""
        ...

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> Any:
        """The state whose `tensors()` these are."""
        ...


def hidden_for(
    parameters: int, count: Callable[[int], int], *, multiple_of: int = 1, digits: int | None = 2
) -> int:
    """The hidden size whose parameter count comes nearest to `parameters`.

    count: parameters for a hidden size, growing with it, for example
        `lambda h: DNC.count_parameters(73, 576, hidden=h)`.
    multiple_of: only hidden sizes that this divides (attention heads).
    digits: the count has to agree with `parameters` once both are rounded to that many digits
        of a million, as printed tables do; UsageError if no size does. None takes the nearest.
    """
    low, high = 1, 2
    while count(high * multiple_of) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle * multiple_of) < parameters else (low, middle)
    best = min((low, high), key=lambda units: abs(count(units * multiple_of) - parameters))
    hidden = best * multiple_of
    if digits is not None and round(count(hidden) / 1e6, digits) != round(parameters / 1e6, digits):
        raise UsageError(
            f"No hidden size gives {parameters / 1e6:.{digits}f}M parameters: the nearest is "
            f"{hidden} with {count(hidden):,}. Ask for another count or smaller inputs and outputs."
        )
    return hidden


def check_sequence(x: Tensor, input_size: int, reset: Tensor | None) -> None:
    """Raise UsageError unless x is (T, B, input_size) and reset is None or bool (T, B)."""
    if x.ndim != 3 or x.shape[2] != input_size:
        raise UsageError(
            f"The core takes x of shape (time, batch, {input_size}), got {tuple(x.shape)}."
        )
    if reset is not None and (reset.dtype != torch.bool or reset.shape != x.shape[:2]):
        raise UsageError(
            f"reset has to be bool of shape (time, batch) = {tuple(x.shape[:2])}, "
            f"got {reset.dtype} of shape {tuple(reset.shape)}."
        )


def segments(steps: int, reset: Tensor | None) -> Iterator[tuple[int, int, Tensor | None]]:
    """Cut `steps` before every step at which a sequence starts afresh.

    Yields (start, stop, fresh): run steps start..stop-1 after clearing the sequences marked in
    fresh (B,), or none if fresh is None.
    """
    # One look at the whole mask; asking at every step would stall a GPU every time.
    cuts = [] if reset is None else reset.any(1).nonzero().squeeze(1).tolist()
    bounds = sorted({0, *cuts, steps})
    for start, stop in pairwise(bounds):
        yield start, stop, reset[start] if reset is not None and start in cuts else None


def pick_tensors(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    """The named tensors of a saved state, or UsageError naming what is missing."""
    missing = [name for name in names if name not in tensors]
    if missing:
        raise UsageError(
            f"The saved state has {sorted(tensors)} but this model needs also {missing}; "
            "it was saved by another kind of model."
        )
    return {name: tensors[name] for name in names}
