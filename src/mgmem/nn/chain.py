"""How layers follow each other and what they add: said once, for computing and for recording.

Grids are a ``Pyramid`` of tensors where it is computed, and ``Places`` where it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar


class Shaped(Protocol):
    """One grid, (..., channels, *space)."""

    @property
    def shape(self) -> Sequence[int]:
        """Its sides."""


class Grids(Protocol):
    """Grids on levels ``lowest``, ``lowest + 1``, ..."""

    @property
    def lowest(self) -> int:
        """The level of the first."""

    @property
    def grids(self) -> Sequence[Any]:
        """One a level; each is ``Shaped``."""


G = TypeVar("G", bound=Grids)
Layer = TypeVar("Layer")


def chain(
    layers: Iterable[Layer],
    inputs: G,
    run: Callable[[int, Layer, G], G],
    add: Callable[[G, G], G] | None,
    join: Callable[[int, G], G] | None = None,
) -> list[G]:
    """What each layer hands on: its output, plus a residual, joined with what it sees.

    Residuals: every second layer from the third on adds what the layer two before it handed on.

    Args:
        layers: the first reads ``inputs``, each other one what the one before it handed on.
        inputs: the input grids.
        run: (index, layer, what it reads) to its output.
        add: (output, what was handed on) to their sum; None: no residuals.
        join: (index, output) to what is handed on; None: the output itself.
    """
    handed_on: list[G] = []
    for index, layer in enumerate(layers):
        outputs = run(index, layer, handed_on[-1] if handed_on else inputs)
        if add is not None and index >= 2 and index % 2 == 0:
            outputs = add(outputs, handed_on[index - 2])
        handed_on.append(outputs if join is None else join(index, outputs))
    return handed_on


def summands(outputs: Grids, earlier: Grids, dims: int) -> list[Any]:
    """For each grid of ``outputs`` the one of ``earlier`` that is added to it, or None.

    That is the one on the same level, unless it has more channels; missing ones count as zero.
    """
    channel, first = -1 - dims, outputs.lowest - earlier.lowest
    found = []
    for index, grid in enumerate(outputs.grids, first):
        other = earlier.grids[index] if 0 <= index < len(earlier.grids) else None
        fits = other is not None and other.shape[channel] <= grid.shape[channel]
        found.append(other if fits else None)
    return found
