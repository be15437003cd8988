"""The tables of exploration, made from the recorded walks and from nothing else."""

from __future__ import annotations

from pathlib import Path

from mgmem.experiments.explore import EXPLORATIONS, PAPER_F, Exploration
from mgmem.experiments.explore_records import WalkRecord, load_walk_records, walk_table


def section(folder: Path | None = None) -> str:
    """Every exploration that has records: who covered how much, and what the memory knew."""
    parts = []
    for exploration in EXPLORATIONS.values():
        records = load_walk_records(exploration.name, folder)
        if records:
            parts.append(_part(exploration, records))
    return "\n\n".join(parts)


def _part(exploration: Exploration, records: list[WalkRecord]) -> str:
    steps = records[0].coverage[-1][0]
    said = [
        f"`{exploration.name}`: {exploration.title}, walks of {steps:,.0f} steps through "
        f"{records[0].walks:,} fresh mazes.",
        walk_table(records),
    ]
    said += [_known(record) for record in records if "f" in record.metrics]
    return "\n\n".join(said)


def _known(record: WalkRecord) -> str:
    """What the memory knew of the walks that the policy chose, and what the policy took."""
    f, precision, recall = (record.estimate(name) for name in ("f", "precision", "recall"))
    return (
        f"Localization on the policy's own walks, memory frozen: F **{f.value:.4f}** "
        f"[{f.low:.4f}, {f.high:.4f}], precision {precision.value:.4f}, recall "
        f"{recall.value:.4f} (paper, 25x25 and 1,000 steps: F {PAPER_F}). The policy learned from "
        f"{record.steps:,} steps in {record.seconds / 60:.0f} minutes: `{record.command}`."
    )
