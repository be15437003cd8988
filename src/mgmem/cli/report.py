"""``mgmem report table | stories | explore | curves | parts | carry | routing``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from mgmem.errors import UsageError
from mgmem.experiments import carry
from mgmem.experiments.records import load_records
from mgmem.report import stories, tables


@dataclass(frozen=True)
class TableOptions:
    """Write the table of results, made from the records, into the README."""

    readme: Path = Path("README.md")
    """File with the markers between which the table stands."""
    check: bool = False
    """Change nothing; fail if the file does not say what the records say."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""
    stdout: bool = False
    """Print the table instead."""


@dataclass(frozen=True)
class StoriesOptions:
    """Write the table of all question answering tasks into its page."""

    page: Path = Path("docs/questions.md")
    """File with the markers between which the table stands."""
    check: bool = False
    """Change nothing; fail if the file does not say what the records say."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""


@dataclass(frozen=True)
class ExploreOptions:
    """Write the tables of all explorations, made from recorded walks, into their page."""

    page: Path = Path("docs/exploration.md")
    """File with the markers between which the tables stand."""
    check: bool = False
    """Change nothing; fail if the file does not say what the records say."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""


@dataclass(frozen=True)
class CurvesOptions:
    """Draw the learning curves of all records, against environment steps and wall time."""

    compared: bool = False
    """Only tasks that several systems were trained on."""
    out: Path = Path("figures")
    """Folder for learning-curves.png."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""


@dataclass(frozen=True)
class PartsOptions:
    """Draw where mapping memories fail: rare patches, old memories, far places."""

    out: Path = Path("figures")
    """Folder for parts.png."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""


@dataclass(frozen=True)
class CarryOptions:
    """Say and draw how far mapping memories carry: other motions, longer walks."""

    measure: bool = False
    """First score shipped memories anew, into results/carry.json; takes minutes."""
    names: tuple[str, ...] = ()
    """Which of them; what was measured of others is kept. Default: all."""
    episodes: int = 500
    """Fresh test mazes for each; fewer for walks of more than 500 steps, as many steps in all."""
    page: Path = Path("docs/mapping.md")
    """File with the markers between which the table stands."""
    out: Path = Path("figures")
    """Folder for carry.png."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""


@dataclass(frozen=True)
class RoutingOptions:
    """Draw how far one cell reaches, layer by layer, with and without scales."""

    out: Path = Path("figures")
    """Folder for routing.png."""


_Commands = (
    Annotated[TableOptions, tyro.conf.subcommand("table")]
    | Annotated[StoriesOptions, tyro.conf.subcommand("stories")]
    | Annotated[ExploreOptions, tyro.conf.subcommand("explore")]
    | Annotated[CurvesOptions, tyro.conf.subcommand("curves")]
    | Annotated[PartsOptions, tyro.conf.subcommand("parts")]
    | Annotated[CarryOptions, tyro.conf.subcommand("carry")]
    | Annotated[RoutingOptions, tyro.conf.subcommand("routing")]
)


def run(arguments: Sequence[str]) -> None:
    """Parse and report."""
    options: Any = tyro.cli(_Commands, prog="mgmem report", args=list(arguments))
    if isinstance(options, TableOptions):
        _table(options)
    elif isinstance(options, StoriesOptions):
        section = stories.section(load_records(options.results))
        _renew(options.page, section, options.check, "stories")
    elif isinstance(options, ExploreOptions):
        from mgmem.report import explore_tables  # needs gymnasium, which is an extra

        section = explore_tables.section(options.results)
        _renew(options.page, section, options.check, "explore")
    elif isinstance(options, CurvesOptions):
        _curves(options)
    elif isinstance(options, PartsOptions):
        _parts(options)
    elif isinstance(options, CarryOptions):
        _carry(options)
    else:
        _routing(options)


def _table(options: TableOptions) -> None:
    section = tables.section(load_records(options.results))
    if options.stdout:
        print(section)
    else:
        _renew(options.readme, section, options.check, "table")


def _renew(page: Path, section: str, check: bool, command: str) -> None:
    if check:
        tables.check_between(page, section, command)
        print(f"{page} says what the records say")
    else:
        changed = tables.write_between(page, section)
        print(f"{page}: {'renewed' if changed else 'nothing had changed'}")


def _curves(options: CurvesOptions) -> None:
    from mgmem.report.curves import draw_learning_curves
    from mgmem.report.style import save_figure

    figure = draw_learning_curves(load_records(options.results), compared=options.compared)
    print(f"written to {save_figure(figure, options.out / 'learning-curves.png')}")


def _parts(options: PartsOptions) -> None:
    from mgmem.report.parts import draw_parts
    from mgmem.report.style import save_figure

    figure = draw_parts(load_records(options.results))
    print(f"written to {save_figure(figure, options.out / 'parts.png')}")


def _carry(options: CarryOptions) -> None:
    from mgmem.report.carry import carry_table, draw_carry
    from mgmem.report.style import save_figure

    if options.measure:
        if options.episodes < 2:
            raise UsageError(f"--episodes {options.episodes}: an interval needs at least 2")
        shipped = carry.shipped_memories()
        if unknown := sorted(set(options.names) - set(shipped)):
            raise UsageError(f"no shipped memory {unknown[0]}; there are {', '.join(shipped)}")
        found: list[carry.Carried] = carry.read(options.results) if options.names else []
        for name in options.names or shipped:
            found = [one for one in found if one.experiment != name]
            found += carry.carry(name, options.episodes, _tell)
        found.sort(key=lambda one: shipped.index(one.experiment))
        print(f"written to {carry.write(found, options.results)}")
    carried = carry.read(options.results)
    _renew(options.page, carry_table(carried), False, "carry")
    print(f"written to {save_figure(draw_carry(carried), options.out / 'carry.png')}")


def _tell(one: carry.Carried) -> None:
    print(f"{one.experiment}: {one.walk}, {one.steps:,} steps: F {one.f}", flush=True)


def _routing(options: RoutingOptions) -> None:
    from mgmem.report.style import save_figure  # first: says what to do if matplotlib is missing

    from mgmem.report.routing import draw_routing  # isort: skip

    print(f"written to {save_figure(draw_routing(), options.out / 'routing.png')}")
