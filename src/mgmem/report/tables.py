"""The README's table of results, made from the records and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, find
from mgmem.experiments.records import Record
from mgmem.training.checkpoint import write_atomically

START = "<!-- results:start -->"
END = "<!-- results:end -->"

_GOALS = (0.9, 0.95, 0.99)
_NAMES = {"f": "F", "error": "error"}


def results_table(records: Sequence[Record]) -> str:
    """Every experiment as a row of Markdown: paper, ours, what it took; "" without records.

    Ours has the 95% interval of its figure; where several seeds were recorded, their mean and
    standard deviation instead, and the mean of what they took.
    """
    if not records:
        return ""
    rows: list[tuple[str, ...]] = [
        (
            "experiment", "parameters", "memory", "paper", "ours (95% interval)",
            "updates", "environment steps", "hours",
        ),
        (":--", "--:", "--:", ":--", ":--", "--:", "--:", "--:"),
    ]  # fmt: skip
    rows += [_row(seeds) for seeds in by_run(records)]
    return _markdown(rows)


def steps_table(records: Sequence[Record]) -> str:
    """Environment steps after which the validation F first reached some marks; "" if none is F."""
    mapping = [seeds for seeds in by_run(records) if seeds[0].metric == "f" and seeds[0].curve]
    if not mapping:
        return ""
    rows: list[tuple[str, ...]] = [
        ("environment steps to", *(f"F {goal}" for goal in _GOALS)),
        (":--", *("--:",) * 3),
    ]
    rows += [(_name(seeds), *(_steps_to(seeds, goal) for goal in _GOALS)) for seeds in mapping]
    return _markdown(rows)


def by_run(records: Sequence[Record]) -> list[list[Record]]:
    """The seeds of each experiment and recipe together, in the order of the registry."""
    order = list(EXPERIMENTS)
    groups: dict[tuple[int, str], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        place = order.index(find(record.experiment).name)
        groups.setdefault((place, record.recipe), []).append(record)
    return [groups[key] for key in sorted(groups)]


def figure(seeds: Sequence[Record]) -> str:
    """The deciding metric: with its interval, or mean and deviation over several seeds."""
    first, values = seeds[0], [record.estimate().value for record in seeds]
    name = _NAMES.get(first.metric, first.metric)
    if len(seeds) == 1:
        ours = first.estimate()
        return f"{name} **{ours.value:.4f}** [{ours.low:.4f}, {ours.high:.4f}]"
    return f"{name} **{mean(values):.4f}** ± {stdev(values):.4f} ({len(seeds)} seeds)"


def section(records: Sequence[Record]) -> str:
    """All that stands between the markers."""
    parts = [results_table(records), steps_table(records)]
    return "\n\n".join(part for part in parts if part)


def write_section(readme: Path, records: Sequence[Record]) -> bool:
    """Put the tables between the markers; True if that changed the file."""
    return write_between(readme, section(records))


def check_section(readme: Path, records: Sequence[Record]) -> None:
    """Raise UsageError unless the file holds what the records say."""
    check_between(readme, section(records), "table")


def write_between(page: Path, new: str) -> bool:
    """Put text between the markers of a page; True if that changed the file."""
    text = _read(page)
    changed = _replaced(text, new, page)
    try:
        if changed != text:
            write_atomically(page, changed.encode())
    except OSError as error:
        raise UsageError(f"{page} can not be written: {error.strerror}") from None
    return changed != text


def check_between(page: Path, new: str, command: str) -> None:
    """Raise UsageError unless this text stands between the markers of a page."""
    text = _read(page)
    if _replaced(text, new, page) != text:
        raise UsageError(
            f"{page} does not show the recorded results: `mgmem report {command}` renews it"
        )


def _read(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{readme} can not be read ({error.strerror}): --readme says where it is"
        ) from None


def _replaced(text: str, new: str, readme: Path) -> str:
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise UsageError(f"{readme} has no lines {START} and {END}: put them where tables shall be")
    body = f"{new}\n" if new else ""
    return f"{before}{START}\n{body}{END}{after}"


def _row(seeds: Sequence[Record]) -> tuple[str, ...]:
    first = seeds[0]
    row = find(first.experiment).row
    paper = row.figures.get(first.metric) if row else None
    hours = mean(record.seconds for record in seeds) / 3600
    return (
        _name(seeds),
        f"{first.parameters:,}",
        f"{first.cells:,}",
        "-" if paper is None else f"{_NAMES.get(first.metric, first.metric)} {paper:.4f}",
        figure(seeds),
        f"{mean(record.updates for record in seeds):,.0f}",
        f"{mean(record.steps for record in seeds):,.0f}",
        f"{hours:.1f}" if hours >= 0.1 else f"{hours:.2f}",
    )


def _steps_to(seeds: Sequence[Record], goal: float) -> str:
    """The mean over seeds, if all of them got there."""
    reached = [steps for record in seeds if (steps := record.steps_to(goal)) is not None]
    return f"{mean(reached):,.0f}" if len(reached) == len(seeds) else "-"


def _name(seeds: Sequence[Record]) -> str:
    """The experiment, and the recipe where it is not ours."""
    recipe = "" if seeds[0].recipe == "fast" else f", {seeds[0].recipe} recipe"
    return f"`{seeds[0].experiment}`{recipe}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
