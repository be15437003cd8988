"""Table 1: mapping and localization."""

from __future__ import annotations

from mgmem.experiments import baselines as base
from mgmem.experiments import multigrid as mg
from mgmem.experiments import recipes_large_maps as large
from mgmem.experiments import recipes_maps as recipes
from mgmem.experiments.experiment import Experiment, PaperRow
from mgmem.experiments.multigrid import Builder
from mgmem.tasks import Mapping


def _scores(precision: float, recall: float, f: float) -> dict[str, float]:
    return {"precision": precision / 100, "recall": recall / 100, "f": f / 100}


def _spiral(world: int, grid: int, queries: tuple[int, ...] = (3,)) -> Mapping:
    """Places are told in twelfths on the grid of 48, too, as is the rule for that of 24."""
    scale = 1 / 12 if grid == 48 else None
    return Mapping(world=world, grid=grid, queries=queries, location_scale=scale)


MULTIGRID = [
    Experiment(
        "mapping-9",
        "9x9 worlds, spiral motion: learns in minutes",
        "multigrid",
        lambda: _spiral(9, 12),
        mg.reader_writer("0-1:4 0-1:4 0-2:8 0-2:8", "0-2:16 1-2:16 1-2:16 2:16 2:1", input=4),
        recipes.FAST_SMALL_WORLD,
        recipes.paper_mapping(50_000),
    ),
    Experiment(
        "mapping-15-small",
        "15x15 worlds, spiral motion, small memory",
        "multigrid",
        lambda: _spiral(15, 24),
        mg.reader_writer(mg.SMALL, mg.SMALL_MAP_TAIL, input=4),
        recipes.FAST_MAPPING,
        recipes.paper_mapping(),
        PaperRow(1, 0.12, 7.99, _scores(99.79, 99.88, 99.83)),
    ),
    Experiment(
        "mapping-15-random",
        "15x15 worlds, random walk of 500 steps, small memory",
        "multigrid",
        lambda: Mapping(world=15, grid=24, motion="random", path_length=500),
        mg.reader_writer(mg.SMALL, mg.SMALL_MAP_TAIL, input=4),
        recipes.FROM_SPIRAL,
        recipes.paper_mapping(),
    ),
    Experiment(
        "mapping-25-small",
        "25x25 worlds, spiral motion, small memory",
        "multigrid",
        # The walk covers 23 x 23 cells: they fit the memory's finest grid, a cell each.
        lambda: _spiral(25, 24),
        mg.reader_writer(mg.SMALL, mg.SMALL_MAP25_TAIL, input=4),
        recipes.FROM_SMALLER_WORLD,
        recipes.paper_mapping(),
        PaperRow(1, 0.17, 7.99, _scores(99.33, 99.02, 99.17)),
    ),
    Experiment(
        "mapping-25-random-small",
        "25x25 worlds, random walk of 500 steps, small memory",
        "multigrid",
        lambda: Mapping(world=25, grid=24, motion="random", path_length=500),
        mg.reader_writer(mg.SMALL, mg.SMALL_MAP25_TAIL, input=4),
        recipes.FROM_SPIRAL_25,
        recipes.paper_mapping(),
    ),
    Experiment(
        "mapping-25",
        "25x25 worlds, spiral motion, large memory",
        "multigrid",
        lambda: _spiral(25, 48),
        mg.reader_writer(mg.LARGE, mg.LARGE_MAP_TAIL, input=4),
        large.MAPPING,
        recipes.paper_mapping(),
        PaperRow(1, 0.65, 76.97, _scores(99.99, 99.97, 99.98)),
    ),
    Experiment(
        "mapping-25-query9",
        "25x25 worlds, spiral motion, sees 3x3, asked for 9x9",
        "multigrid",
        lambda: _spiral(25, 48, (9,)),
        mg.reader_writer(mg.LARGE, mg.LARGE_QUERY9_TAIL, input=4),
        large.QUERIES_OF_NINE,
        recipes.paper_mapping(),
        PaperRow(1, 0.79, 76.97, _scores(97.34, 99.50, 98.41)),
    ),
    Experiment(
        "mapping-25-random",
        "25x25 worlds, random walk of 500 steps",
        "multigrid",
        lambda: Mapping(world=25, grid=48, motion="random", path_length=500),
        mg.reader_writer(mg.LARGE, mg.LARGE_MAP_TAIL, input=4),
        large.FROM_SPIRAL,
        recipes.paper_mapping(),
        PaperRow(1, 0.65, 76.97, _scores(96.83, 95.59, 96.20)),
    ),
    Experiment(
        "mapping-25-random-1500",
        "25x25 worlds, random walk of 1,500 steps",
        "multigrid",
        lambda: Mapping(world=25, grid=48, motion="random", path_length=1500),
        mg.reader_writer(mg.LARGE, mg.LARGE_MAP_TAIL, input=4),
        large.FROM_SHORTER_WALKS,
        recipes.paper_mapping(),
        PaperRow(1, 0.65, 76.97, _scores(96.13, 91.08, 93.54)),
    ),
    Experiment(
        "mapping-25-fov9",
        "25x25 worlds, random walk, sees 9x9, asked for 9x9",
        "multigrid",
        lambda: Mapping(world=25, grid=48, fov=9, queries=(9,), motion="random", path_length=500),
        mg.reader_writer(mg.LARGE_FOV9, mg.LARGE_MAP_TAIL, input="0-2:4", fit="pad"),
        recipes.FAST_MAPPING,
        recipes.paper_mapping(),
        PaperRow(1, 0.66, 78.12, _scores(92.82, 87.60, 90.14)),
    ),
]


def _baseline(
    name: str, title: str, system: str, world: int, model: Builder, row: PaperRow | None = None
) -> Experiment:
    """A baseline on spiral worlds, with a recipe of its own kind."""
    grid = 24 if world == 15 else 48
    flat = {
        "dnc": recipes.mapping_dnc,
        "lstm": recipes.mapping_whole,
        "transformer": recipes.mapping_whole,
    }
    fast = flat.get(system, recipes.mapping_one_scale)()
    paper = recipes.paper_mapping(rate=1e-4 if system in flat else 1e-3)
    return Experiment(name, title, system, lambda: _spiral(world, grid), model, fast, paper, row)


def _one_scale(world: int, system: str, variant: str, row: PaperRow | None = None) -> Experiment:
    spec, tail = (mg.SMALL, mg.SMALL_MAP_TAIL) if world == 15 else (mg.LARGE, mg.LARGE_MAP_TAIL)
    title = f"{world}x{world} worlds, spiral motion, {system}"
    model = base.one_scale(spec, tail, variant, 4)
    return _baseline(f"mapping-{world}-{system}", title, system, world, model, row)


BASELINES = [
    _baseline(
        "mapping-15-dnc",
        "15x15 worlds, spiral motion, DNC",
        "dnc",
        15,
        base.dnc(293),
        PaperRow(1, 0.75, 8.00, _scores(91.09, 87.67, 89.35)),
    ),
    _one_scale(15, "ablated", "ablated"),
    _one_scale(15, "conv-lstm-deep", "deep"),
    _one_scale(15, "conv-lstm-thick", "thick"),
    _baseline(
        "mapping-15-lstm", "15x15 worlds, spiral motion, LSTM", "lstm", 15, base.plain_lstm(96)
    ),
    _baseline(
        "mapping-15-transformer",
        "15x15 worlds, spiral motion, causal transformer",
        "transformer",
        15,
        base.transformer(64, 2),
    ),
    _baseline(
        "mapping-25-dnc",
        "25x25 worlds, spiral motion, DNC",
        "dnc",
        25,
        base.dnc(148),
        PaperRow(1, 0.68, 8.00, _scores(77.63, 14.50, 24.44)),
    ),
    _one_scale(25, "ablated", "ablated", PaperRow(1, 1.40, 265.54, _scores(77.57, 51.27, 61.73))),
    _one_scale(25, "conv-lstm-deep", "deep", PaperRow(1, 0.38, 626.69, _scores(43.42, 3.52, 6.51))),
    _one_scale(
        25, "conv-lstm-thick", "thick", PaperRow(1, 1.40, 626.69, _scores(47.68, 1.11, 2.16))
    ),
]
