"""``mgmem bench train | stories | step | scaling``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mgmem import ops
from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments.records import commit, machine, today
from mgmem.files import write_atomically
from mgmem.ops import native

if TYPE_CHECKING:
    from mgmem.bench.workload import Workload


@dataclass(frozen=True)
class Training:
    """Updates per second, GFLOP/s and their share of a matrix product's, by backend."""

    names: tyro.conf.Positional[tuple[str, ...]] = ("mapping-15-small", "mapping-25", "words")
    """Experiments to measure; words is a 1D memory that reads stories."""
    backends: tuple[str, ...] = ()
    """Backends to compare; default: all that are available."""
    repeats: int = 7
    """Timed updates of each backend; medians are reported."""
    batch: tuple[int, ...] = (8, 32)
    """Sequences side by side; each is measured."""
    queries: tuple[int, ...] = (4, 20)
    """Steps of 20 after which a query is asked; each is measured."""
    words: tuple[int, ...] = (20, 200)
    """Lengths of the stories of the 1D memory; each is measured."""
    beside: bool = False
    """Also beside a busy neighbour: a matrix product in a loop, then a second training."""
    out: Path | None = None
    """Write the measurements as JSON."""


@dataclass(frozen=True)
class StoriesOptions:
    """Words per second of learning from stories, and hours for an epoch of all twenty tasks."""

    name: tyro.conf.Positional[str] = "babi"
    """Experiment to measure."""
    lengths: tuple[int, ...] = (24, 53, 100, 150)
    """Words of the stories that are measured."""
    repeats: int = 5
    """Timed updates of each length; medians are reported."""
    batch: int = 64
    """Stories side by side, at most."""
    out: Path | None = None
    """Write the measurements as JSON."""


@dataclass(frozen=True)
class Step:
    """One-step inference of multigrid and DNC at the same memory."""

    names: tyro.conf.Positional[tuple[str, ...]] = ("mapping-15-small", "mapping-15-dnc")
    """Experiments to measure."""
    repeats: int = 200
    """Timed steps of each; medians are reported."""
    batch: int = 1
    """Sequences side by side."""
    out: Path | None = None
    """Write the measurements as JSON."""


@dataclass(frozen=True)
class Scaling:
    """Time and bytes per step against memory size, multigrid and DNC in one run."""

    cells: tuple[int, ...] = (1_000, 8_000, 32_000, 128_000, 512_000, 2_000_000, 8_000_000)
    """Memory sizes of the multigrid memory."""
    dnc_cells: tuple[int, ...] = (1_000, 8_000, 32_000, 128_000, 256_000)
    """Memory sizes of the DNC, whose link matrix is quadratic."""
    repeats: int = 50
    """Timed steps at small sizes; fewer at large ones."""
    out: Path | None = None
    """Write the measurements as JSON."""
    figure: Path | None = None
    """Draw them, such as figures/scaling.png."""


_Commands = (
    Annotated[Training, tyro.conf.subcommand("train")]
    | Annotated[StoriesOptions, tyro.conf.subcommand("stories")]
    | Annotated[Step, tyro.conf.subcommand("step")]
    | Annotated[Scaling, tyro.conf.subcommand("scaling")]
)


def run(arguments: Sequence[str]) -> None:
    """Parse and measure."""
    options: Any = tyro.cli(_Commands, prog="mgmem bench", args=list(arguments))
    _check(options)
    measures: dict[type, Callable[[Any], dict[str, Any]]]
    measures = {Training: _train, StoriesOptions: _stories, Step: _step, Scaling: _scaling}
    measured = measures[type(options)](options)
    measured |= {"commit": commit(), "date": today(), "machine": machine()}
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out, (json.dumps(measured, indent=1) + "\n").encode())
        print(f"written to {options.out}")


def _check(options: Any) -> None:
    """Every count is one, and not beyond what a machine could hold."""
    most = {"repeats": 10**6, "batch": 10**5, "cells": 10**9, "dnc_cells": 10**6}
    for name, limit in most.items():
        given = getattr(options, name, ())
        for value in given if isinstance(given, tuple) else (given,):
            if not 1 <= value <= limit:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} {value}: give 1 to {limit:,}")


def _train(options: Training) -> dict[str, Any]:
    from mgmem.bench.beside import bench_beside
    from mgmem.bench.train import bench_training

    backends = options.backends or tuple(
        name for name in ops.BACKENDS if name != "auto" and (name != "native" or native.available())
    )
    measured = []
    for load in _workloads(options):
        result = bench_training(load, backends, options.repeats)
        measured.append(result)
        rate = result["matrix_product_gflops"]
        print(
            f"{load.name}: batch {load.batch}, {load.steps} steps, {load.queries} "
            f"queries, {result['threads']} threads; a matrix product runs at {rate:.0f} GFLOP/s"
        )
        table = new_table(
            *("backend", "updates/s", "GFLOP/s", "of product", "peak MB", "time goes to"),
            left=("time goes to",),
        )
        for backend, row in result["backends"].items():
            parts = sorted((row["shares"] or {}).items(), key=lambda part: -part[1])
            table.add_row(
                backend,
                f"{row['updates_per_second']:.2f}",
                f"{row['gflops']:.1f}",
                f"{row['share_of_matrix_product']:.2f}",
                "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.0f}",
                ", ".join(f"{part} {share:.0%}" for part, share in parts),
            )
        print_table(table)
        if options.beside and load.learner is not None:
            result["beside"] = rates = bench_beside(load, options.repeats)
            alone = rates["alone"]
            print(
                f"beside a looping matrix product {rates['beside_matrix_product'] / alone:.2f} of "
                f"its speed alone; two trainings at once {rates['two_together'] / alone:.2f}"
            )
    return {"bench": "train", "measured": measured}


def _stories(options: StoriesOptions) -> dict[str, Any]:
    from mgmem.bench.stories import bench_stories

    result = bench_stories(options.name, options.lengths, options.repeats, options.batch)
    table = new_table("words of a story", "stories", "words/s", "GFLOP/s")
    for row in result["lengths"]:
        gflops = "-" if row["gflops"] is None else f"{row['gflops']:.1f}"
        counts = (str(row["steps"]), str(row["stories"]), f"{row['words_per_second']:,.0f}")
        table.add_row(*counts, gflops)
    print_table(table)
    print(
        f"an epoch: {result['epoch_words']:,} words, {result['epoch_updates']:,} updates, "
        f"{result['words_per_second']:,.0f} words/s, {result['epoch_hours']:.2f} hours; a matrix "
        f"product runs at {result['matrix_product_gflops']:.0f} GFLOP/s"
    )
    return {"bench": "stories", "measured": result}


def _workloads(options: Training) -> Iterator[Workload]:
    """Every combination that was asked for, made when its turn comes."""
    from mgmem.bench.workload import WORDS, workload

    for name, batch in product(options.names, options.batch):
        for number in options.words if name == WORDS else options.queries:
            key = "words" if name == WORDS else "queries"
            yield workload(name, batch, **{key: number})


def _step(options: Step) -> dict[str, Any]:
    from mgmem.bench.step import bench_step

    result = bench_step(list(options.names), options.repeats, options.batch)
    table = new_table("experiment", "ms per step", "parameters", "cells")
    for name, row in result["models"].items():
        milliseconds = f"{row['seconds'] * 1e3:.3f}"
        table.add_row(name, milliseconds, f"{row['parameters']:,}", f"{row['cells']:,}")
    print_table(table)
    return {"bench": "step", "measured": result}


def _scaling(options: Scaling) -> dict[str, Any]:
    from mgmem.bench.scaling import bench_scaling

    result = bench_scaling(options.cells, options.dnc_cells, options.repeats)
    table = new_table("system", "cells", "ms per step", "MB of state", "ns per cell")
    for row in result["rows"]:
        table.add_row(
            row["system"],
            f"{row['cells']:,}",
            f"{row['seconds'] * 1e3:.3f}",
            f"{row['bytes'] / 1e6:.2f}",
            f"{row['seconds'] / row['cells'] * 1e9:.1f}",
        )
    print_table(table)
    for system, growth in result["exponents"].items():
        if growth is not None:
            print(
                f"{system}: over the larger sizes time grows with cells to the power "
                f"{growth['seconds']:.2f}, bytes {growth['bytes']:.2f}"
            )
    if options.figure is not None:
        from mgmem.report.curves import draw_scaling
        from mgmem.report.style import save_figure

        save_figure(draw_scaling(result["rows"]), options.figure)
    return {"bench": "scaling", "measured": result}
