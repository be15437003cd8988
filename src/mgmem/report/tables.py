"""The README's table of results, made from the records and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, find
from mgmem.experiments.records import Record
from mgmem.training.checkpoint import write_atomically

START = "<!-- results:start -->"
END = "<!-- results:end -->"

_GOALS = (0.9, 0.95, 0.99)
_NAMES = {"f": "F", "error": "error"}


def results_table(records: Sequence[Record]) -> str:
    """Every record as a row of Markdown: paper, ours with its interval, what it took; or ""."""
    if not records:
        return ""
    rows: list[tuple[str, ...]] = [
        (
            "experiment", "parameters", "memory", "paper", "ours (95% interval)",
            "updates", "environment steps", "hours",
        ),
        (":--", "--:", "--:", ":--", ":--", "--:", "--:", "--:"),
    ]  # fmt: skip
    ordered = _ordered(records)
    rows += [_row(record, ordered) for record in ordered]
    return _markdown(rows)


def steps_table(records: Sequence[Record]) -> str:
    """Environment steps after which the validation F first reached some marks; "" if none is F."""
    mapping = [r for r in _ordered(records) if _key(r) == "f" and r.curve]
    if not mapping:
        return ""
    rows: list[tuple[str, ...]] = [
        ("environment steps to", *(f"F {goal}" for goal in _GOALS)),
        (":--", *("--:",) * 3),
    ]
    for record in mapping:
        reached = [record.steps_to("f", goal) for goal in _GOALS]
        steps = ("-" if count is None else f"{count:,}" for count in reached)
        rows.append((_name(record, mapping), *steps))
    return _markdown(rows)


def section(records: Sequence[Record]) -> str:
    """All that stands between the markers."""
    parts = [results_table(records), steps_table(records)]
    return "\n\n".join(part for part in parts if part)


def write_section(readme: Path, records: Sequence[Record]) -> bool:
    """Put the tables between the markers; True if that changed the file."""
    text = _read(readme)
    new = _replaced(text, section(records), readme)
    try:
        if new != text:
            write_atomically(readme, new.encode())
    except OSError as error:
        raise UsageError(f"{readme} can not be written: {error.strerror}") from None
    return new != text


def check_section(readme: Path, records: Sequence[Record]) -> None:
    """Raise UsageError unless the file holds what the records say."""
    text = _read(readme)
    if _replaced(text, section(records), readme) != text:
        raise UsageError(
            f"{readme} does not show the recorded results: `mgmem report table` renews it"
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


def _ordered(records: Sequence[Record]) -> list[Record]:
    """In the order of the registry; an unknown experiment is an error."""
    order = list(EXPERIMENTS)
    return sorted(records, key=lambda r: (order.index(find(r.experiment).name), r.recipe, r.seed))


def _key(record: Record) -> str:
    """The metric that decides."""
    return find(record.experiment).task().new_score().key


def _row(record: Record, all_records: Sequence[Record]) -> tuple[str, ...]:
    key = _key(record)
    row = find(record.experiment).row
    paper = row.figures.get(key) if row else None
    ours = record.estimate(key)
    hours = record.seconds / 3600
    return (
        _name(record, all_records),
        f"{record.parameters:,}",
        f"{record.cells:,}",
        "-" if paper is None else f"{_NAMES.get(key, key)} {paper:.4f}",
        f"{_NAMES.get(key, key)} **{ours.value:.4f}** [{ours.low:.4f}, {ours.high:.4f}]",
        f"{record.updates:,}",
        f"{record.steps:,}",
        f"{hours:.1f}" if hours >= 0.1 else f"{hours:.2f}",
    )


def _name(record: Record, all_records: Sequence[Record]) -> str:
    """The experiment; recipe and seed only where they are needed to tell runs apart."""
    runs = [other for other in all_records if other.experiment == record.experiment]
    run = f", {record.recipe} recipe, seed {record.seed}" if len(runs) > 1 else ""
    return f"`{record.experiment}`{run}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
