"""``mgmem describe SPEC``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import tyro
from torch import nn

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, count_parameters
from mgmem.nn import EncoderDecoder, MultigridCNN, MultigridMemory, ReadWrite
from mgmem.spec import MeshSpec, Peephole, as_layer, conv_costs, cost_table, memory_costs

_LARGEST = 1_000_000


@dataclass(frozen=True)
class Describe:
    """Draw a mesh: one row a layer with its grids, channels, cells and parameters."""

    what: tyro.conf.Positional[str]
    """The memory's layers, such as "0-1:4 0-2:8", or an experiment's name."""
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
    if options.what in EXPERIMENTS:
        _describe_experiment(EXPERIMENTS[options.what])
        return
    if not 1 <= options.kernel <= _LARGEST or options.kernel % 2 == 0:
        raise UsageError(f"--kernel {options.kernel}: give an odd size, 1 to {_LARGEST}")
    if not 1 <= len(options.base) <= 2 or not all(1 <= s <= _LARGEST for s in options.base):
        raise UsageError(f"--base {options.base}: give one side or two, each 1 to {_LARGEST}")
    mesh, layer = MeshSpec.parse(options.what), as_layer(options.input)
    mesh.check_input(layer)
    kernel, norm = options.kernel, options.norm
    costs = memory_costs(
        mesh, layer, options.base, kernel=kernel, norm=norm, peephole=options.peephole
    )
    print(cost_table(costs, f"memory on input {layer}"))
    if options.tail is not None:
        reader = mesh + MeshSpec.parse(options.tail)
        more = conv_costs(reader, layer, options.base, kernel=kernel, norm=norm, sees=mesh)
        print(cost_table(more, "\nreader"))
        total = sum(cost.parameters for cost in costs + more)
        print(f"\nmemory and reader: {total:,} parameters, {sum(c.cells for c in costs):,} cells")


def _describe_experiment(experiment: Experiment) -> None:
    """Its row of the paper, its stages, and the mesh of every network in it."""
    with torch.device("meta"):
        task, model = experiment.build()
    print(f"{experiment.name}: {experiment.title}")
    print(f"  {count_parameters(model):,} parameters, {model.cells:,} memory cells ({task.name})")
    if experiment.row:
        figures = ", ".join(f"{name} {value}" for name, value in experiment.row.figures.items())
        row = experiment.row
        print(f"  paper, Table {row.table}: {row.parameters}M parameters, {row.memory}K: {figures}")
    stages = ", ".join(f"{s.name} (at most {s.updates:,})" for s in experiment.fast.stages)
    print(f"  updates: {stages}")
    if isinstance(model, EncoderDecoder):
        _print_mesh("encoder, and decoder", model.encoder)
        _print_mesh("tail", model.tail)
    elif isinstance(model, ReadWrite):
        _print_mesh("memory", model.memory)
        for reader in model.readers:
            _print_mesh("reader", reader)
    else:
        print(model)


def _print_mesh(title: str, network: nn.Module) -> None:
    if isinstance(network, MultigridMemory):
        costs = memory_costs(network.spec, network.input, network.base, kernel=network.kernel)
    else:
        assert isinstance(network, MultigridCNN)
        costs = conv_costs(
            network.spec, network.input, network.base, kernel=network.kernel, sees=network.sees
        )
    print(cost_table(costs, f"\n{title} on input {network.input}"))
