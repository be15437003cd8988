"""The mesh in a line of text: ``"0-1:4 0-2:8"`` is two layers of grids.

A token ``lo-hi:channels`` (or ``level:channels``) is one layer: a grid on every level from lo to
hi, each with that many channels. A grid on level j has the base's sides times 2**j. Level j of a
layer reads levels j-1, j and j+1 of the layer below, whichever exist; a level that would read
nothing is an error. Everything here is arithmetic on the specification: nothing is built.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mgmem.errors import UsageError

Peephole = Literal["none", "channel", "cell"]
_TOKEN = re.compile(r"(?P<lowest>[0-9]{1,9})(?:-(?P<highest>[0-9]{1,9}))?:(?P<channels>[0-9]{1,9})")
_WIDEST = 200
_HIGHEST = 32
"""A grid so high has sides of billions of cells; above are misprints only."""


@dataclass(frozen=True)
class LayerSpec:
    """One layer: a grid of ``channels`` channels on every level from lowest to highest."""

    lowest: int
    highest: int
    channels: int

    def __post_init__(self) -> None:
        if self.lowest < 0:
            raise UsageError(f"levels start at 0, not {self.lowest}")
        if self.highest < self.lowest:
            raise UsageError(
                f"reversed range of levels: write {self.highest}-{self.lowest}, the lower first"
            )
        if self.highest > _HIGHEST:
            raise UsageError(
                f"level {self.highest}: its grid would have the base's sides times "
                f"2^{self.highest}; levels end at {_HIGHEST}"
            )
        if self.channels < 1:
            raise UsageError(f"{self.channels} channels: a layer needs at least 1")

    @property
    def levels(self) -> range:
        """The levels of this layer, coarsest first."""
        return range(self.lowest, self.highest + 1)

    def channels_read_by(self, level: int) -> int:
        """Channels that a grid on ``level`` of the next layer gets from this one."""
        return sum(self.channels for j in (level - 1, level, level + 1) if j in self.levels)

    def __str__(self) -> str:
        levels = f"{self.lowest}" if len(self.levels) == 1 else f"{self.lowest}-{self.highest}"
        return f"{levels}:{self.channels}"


@dataclass(frozen=True)
class MeshSpec:
    """Layers from the one next to the input to the deepest."""

    layers: tuple[LayerSpec, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise UsageError('an empty specification: give at least one layer, such as "0-1:4"')
        for index in range(1, len(self.layers)):
            _check_reach(self.layers[index - 1], self.layers[index], index, "the layer below")

    @classmethod
    def parse(cls, text: str) -> MeshSpec:
        """Read ``"0-1:4 0-2:8"``; an error shows the text with the faulty token underlined."""
        tokens = list(re.finditer(r"\S+", text))
        if not tokens:
            raise UsageError('an empty specification: give at least one layer, such as "0-1:4"')
        layers: list[LayerSpec] = []
        for token in tokens:
            match = _TOKEN.fullmatch(token.group())
            if match is None:
                raise UsageError(
                    _point(
                        text, token.span(), "not a layer; write lo-hi:channels or level:channels"
                    )
                )
            lowest = int(match["lowest"])
            highest = int(match["highest"] or lowest)
            try:
                layers.append(LayerSpec(lowest, highest, int(match["channels"])))
                if len(layers) > 1:
                    _check_reach(layers[-2], layers[-1], len(layers) - 1, "the layer below")
            except UsageError as error:
                raise UsageError(_point(text, token.span(), str(error))) from None
        return cls(tuple(layers))

    def check_input(self, below: LayerSpec) -> None:
        """Raise unless every level of the first layer reads some level of the input."""
        _check_reach(below, self.layers[0], 0, "the input")

    def __str__(self) -> str:
        return " ".join(str(layer) for layer in self.layers)

    def __iter__(self) -> Iterator[LayerSpec]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> LayerSpec:
        return self.layers[index]

    def __add__(self, other: MeshSpec) -> MeshSpec:
        return MeshSpec(self.layers + other.layers)


def _check_reach(below: LayerSpec, layer: LayerSpec, index: int, what: str) -> None:
    lost = [j for j in layer.levels if below.channels_read_by(j) == 0]
    if lost:
        raise UsageError(
            f"layer {index + 1} ({layer}): level {lost[0]} is out of reach of {what} "
            f"({below}); levels {max(below.lowest - 1, 0)} to {below.highest + 1} can read it"
        )


Mesh: TypeAlias = "str | MeshSpec | Sequence[str | LayerSpec]"
"""A specification as a user may give it."""


def as_mesh(spec: Mesh) -> MeshSpec:
    """A specification given as text, as the dataclass, or as a list of layers, each either."""
    if isinstance(spec, MeshSpec):
        return spec
    if not isinstance(spec, str):
        if not isinstance(spec, Sequence) or not all(isinstance(s, str | LayerSpec) for s in spec):
            raise UsageError(f'a specification {spec!r}: write text such as "0-1:4 0-2:8"')
        spec = " ".join(map(str, spec))
    return MeshSpec.parse(spec)


def as_layer(spec: int | str | LayerSpec) -> LayerSpec:
    """An input: a channel count (at level 0), one token such as ``"0-2:1"``, or the dataclass."""
    if isinstance(spec, int):
        return LayerSpec(0, 0, spec)
    if isinstance(spec, str):
        mesh = MeshSpec.parse(spec)
        if len(mesh) != 1:
            raise UsageError(f'an input is one layer such as "0-2:1", not {len(mesh)}: "{spec}"')
        return mesh[0]
    return spec


def grid_shape(base: Sequence[int], level: int) -> tuple[int, ...]:
    """Sides of the grid on ``level``: the base's, doubled ``level`` times."""
    return tuple(side << level for side in base)


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs: memory cells, parameters and multiply-adds per time step."""

    layer: LayerSpec
    grids: tuple[tuple[int, ...], ...]
    cells: int
    parameters: int
    multiply_adds: int


def memory_costs(
    spec: Mesh,
    input: int | str | LayerSpec,
    base: Sequence[int] = (3, 3),
    *,
    kernel: int = 3,
    peephole: Peephole = "none",
    norm: bool = False,
) -> list[LayerCost]:
    """Costs of each MG-conv-LSTM layer: four gates over the input and the layer's own past."""
    below, costs = as_layer(input), []
    taps = kernel ** len(base)
    for layer in as_mesh(spec):
        sizes = [math.prod(grid_shape(base, j)) for j in layer.levels]
        gates = [
            4 * layer.channels * (below.channels_read_by(j) + layer.channels) * taps
            for j in layer.levels
        ]
        peepholes = {"none": 0, "channel": len(sizes), "cell": sum(sizes)}[peephole]
        parameters = (
            sum(gates)
            + 4 * layer.channels * len(sizes)
            + 3 * layer.channels * peepholes
            + (2 * layer.channels * len(sizes) if norm else 0)
        )
        work = sum(g * size for g, size in zip(gates, sizes, strict=True))
        cells = layer.channels * sum(sizes)
        grids = tuple(grid_shape(base, j) for j in layer.levels)
        costs.append(LayerCost(layer, grids, cells, parameters, work))
        below = layer
    return costs


def conv_costs(
    spec: Mesh,
    input: int | str | LayerSpec,
    base: Sequence[int] = (3, 3),
    *,
    kernel: int = 3,
    norm: bool = False,
    sees: MeshSpec | None = None,
) -> list[LayerCost]:
    """Costs of each MG-conv layer; its output is joined by the same layer of the mesh ``sees``."""
    below, costs = as_layer(input), []
    taps = kernel ** len(base)
    for index, layer in enumerate(as_mesh(spec)):
        sizes = [math.prod(grid_shape(base, j)) for j in layer.levels]
        weights = [layer.channels * below.channels_read_by(j) * taps for j in layer.levels]
        parameters = sum(weights) + (3 if norm else 1) * layer.channels * len(sizes)
        work = sum(w * size for w, size in zip(weights, sizes, strict=True))
        grids = tuple(grid_shape(base, j) for j in layer.levels)
        costs.append(LayerCost(layer, grids, 0, parameters, work))
        joined = sees[index].channels if sees is not None and index < len(sees) else 0
        below = LayerSpec(layer.lowest, layer.highest, layer.channels + joined)
    return costs


def cost_table(costs: Sequence[LayerCost], title: str = "") -> str:
    """Draw the mesh: one row a layer with its grids, channels, cells and parameters."""
    rows: list[tuple[str, ...]] = [
        ("layer", "grids", "channels", "cells", "parameters", "multiply-adds")
    ]
    for number, cost in enumerate(costs, 1):
        sides = " ".join("x".join(map(str, grid)) for grid in cost.grids)
        rows.append(
            (
                str(number),
                sides,
                str(cost.layer.channels),
                f"{cost.cells:,}",
                f"{cost.parameters:,}",
                f"{cost.multiply_adds:,}",
            )
        )
    total = [
        sum(getattr(c, field) for c in costs) for field in ("cells", "parameters", "multiply_adds")
    ]
    rows.append(("all", "", "", *(f"{number:,}" for number in total)))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    return "\n".join(([title] if title else []) + lines)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        yield text.ljust(width) if index == 1 else text.rjust(width)


def _point(text: str, span: tuple[int, int], message: str) -> str:
    start, end = span
    if len(text) > _WIDEST:  # what is around it
        first = max(0, start - _WIDEST // 2)
        text, start = text[first : first + _WIDEST], start - first
        end = min(end - first, len(text))
    return f"{message}\n    {text}\n    {' ' * start}{'^' * (end - start)}"
