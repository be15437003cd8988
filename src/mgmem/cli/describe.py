"""``mgmem describe SPEC``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from mgmem.spec import MeshSpec, Peephole, as_layer, conv_costs, cost_table, memory_costs


@dataclass(frozen=True)
class Describe:
    """Draw a mesh: one row a layer with its grids, channels, cells and parameters."""

    spec: tyro.conf.Positional[str]
    """The memory's layers, such as "0-1:4 0-2:8"."""
    input: str = "0:4"
    """Channels of the input on its levels, such as 0:4 or 0-2:1."""
    base: tuple[int, ...] = (3, 3)
    """Sides of level 0: one number for 1D, two for 2D."""
    tail: str | None = None
    """Layers of a reader after those that mirror the memory, such as "1-3:16 3:1"."""
    kernel: int = 3
    """Size of the convolutions."""
    peephole: Peephole = "none"
    """Peephole weights: none, one per channel, or one per cell."""
    norm: bool = False
    """Count batch norm."""


def run(arguments: Sequence[str]) -> None:
    """Parse and print."""
    options = tyro.cli(Describe, prog="mgmem describe", args=list(arguments))
    mesh, layer = MeshSpec.parse(options.spec), as_layer(options.input)
    mesh.check_input(layer)
    common = {"kernel": options.kernel, "norm": options.norm}
    costs = memory_costs(mesh, layer, options.base, peephole=options.peephole, **common)  # type: ignore[arg-type]
    print(cost_table(costs, f"memory on input {layer}"))
    if options.tail is not None:
        reader = mesh + MeshSpec.parse(options.tail)
        more = conv_costs(reader, layer, options.base, sees=mesh, **common)  # type: ignore[arg-type]
        print(cost_table(more, "\nreader"))
        total = sum(cost.parameters for cost in costs + more)
        print(f"\nmemory and reader: {total:,} parameters, {sum(c.cells for c in costs):,} cells")
