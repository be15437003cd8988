"""``mgmem evaluate NAME | RUN FOLDER | FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import Progress
from torch import nn

from mgmem.cli.map_table import print_map
from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments import Experiment
from mgmem.experiments import records as records_
from mgmem.experiments.scored import Scored
from mgmem.experiments.trained import Trained, load
from mgmem.tasks.base import Estimate, FiniteTask, Task
from mgmem.tasks.gap_scores import GapScore
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.patch_scores import PatchScore
from mgmem.tasks.seeds import SeedStream
from mgmem.tasks.sort import PrioritySort
from mgmem.training.device import Amp, DeviceName, pick_device
from mgmem.training.evaluation import TEST_SEED, evaluate

_EPISODES = 5000


@dataclass(frozen=True)
class Evaluate:
    """Score trained weights on fresh test episodes, which training never draws from."""

    what: tyro.conf.Positional[str]
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    episodes: int | None = None
    """Fresh test episodes; default: 5,000, or all where there are only so many."""
    record: bool = False
    """Write results/NAME/RECIPE-seedN.json; needs a run folder, for its curve and budget."""
    publish: bool = False
    """Make the weights the experiment's shipped ones; refused if the shipped are better."""
    force: bool = False
    """Publish even so: worse, unrecorded, or scored on few episodes."""
    half: bool = False
    """Round the weights to half precision first: the scores are those of the smaller file."""
    patches: bool = False
    """Also print the score apart for common and for rare patches (mapping)."""
    map: bool = False
    """Also measure whether the map is in the memory, on at most 50 of the episodes (mapping)."""
    gaps: bool = False
    """Also print the error apart for close and for distant priorities (sorting)."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""
    device: DeviceName = "auto"
    """Where to compute; auto: a GPU where there is one."""
    amp: Amp = "none"
    """bf16: compute in bfloat16 where that is safe."""
    quiet: bool = False
    """Show no progress."""


def run(arguments: Sequence[str]) -> None:
    """Parse and evaluate."""
    options = tyro.cli(Evaluate, prog="mgmem evaluate", args=list(arguments))
    if options.episodes is not None and not 2 <= options.episodes <= 10**9:
        raise UsageError(f"--episodes {options.episodes}: an interval needs at least 2")
    trained = load(options.what, pick_device(options.device))
    run_folder = Path(options.what)
    if options.record and not run_folder.is_dir():
        raise UsageError("--record needs a run folder with a checkpoint, for its curve and budget")
    if options.half:
        _round_to_half(trained.model)
    apart = _score_apart(options, trained.task)
    episodes = _count(trained.task, options.episodes)
    metrics = score(trained, episodes, options.quiet, apart, options.amp)
    for line in comparison(trained.experiment, metrics):
        print(line)
    if isinstance(apart, PatchScore):
        _print_patches(apart)
    elif apart is not None:
        _print_gaps(apart)
    if options.map:
        print_map(trained.model, trained.task, episodes)
    results = options.results or records_.results_folder()
    scored = Scored(trained, metrics, episodes, options.half)
    if options.record:
        print(f"recorded in {scored.record(run_folder).write(results)}")
    if options.publish:
        scored.publish(results, force=options.force)
        print(f"published as the weights of {trained.experiment.name}")


def _count(task: Task, wanted: int | None) -> int:
    """How many test episodes are scored."""
    if isinstance(task, FiniteTask):
        size = task.size("test")
        return size if wanted is None else min(wanted, size)
    return _EPISODES if wanted is None else wanted


def _round_to_half(model: nn.Module) -> None:
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.half())


def score(
    trained: Trained,
    episodes: int,
    quiet: bool,
    apart: PatchScore | GapScore | None = None,
    amp: Amp = "none",
) -> dict[str, Estimate]:
    """Metrics on the first ``episodes`` test episodes; ``apart`` sees all answers."""
    hidden = quiet or not sys.stderr.isatty()
    with Progress(transient=True, disable=hidden, console=Console(file=sys.stderr)) as bar:
        row = bar.add_task("evaluating", total=episodes)
        return evaluate(
            trained.model,
            trained.task,
            SeedStream(TEST_SEED, "test"),
            episodes,
            amp=amp,
            progress=lambda done: bar.update(row, completed=done),
            watch=apart.add if apart is not None else lambda answers, batch: None,
        ).result()


def _score_apart(options: Evaluate, task: Task) -> PatchScore | GapScore | None:
    """What is to be scored apart; an error if the task has nothing of the kind."""
    if options.patches and not isinstance(task, Mapping):
        raise UsageError(f"--patches: {task.name} asks for no patches; mapping does")
    if not options.gaps:
        return PatchScore() if options.patches else None
    if not isinstance(task, PrioritySort):
        raise UsageError(f"--gaps: {task.name} has no priorities; sort has")
    return GapScore(task.spread)


def _print_patches(patches: PatchScore) -> None:
    table = new_table("patches by how often asked", "queries", "precision", "recall", "F")
    for row in patches.rows():
        figures = (f"{value:.4f}" for value in (row.precision, row.recall, row.f))
        table.add_row(row.ranks, f"{row.share:.1%}", *figures)
    print_table(table)


def _print_gaps(gaps: GapScore) -> None:
    table = new_table("nearest priority", "items", "error", "part of all errors")
    rows = gaps.rows()
    total = sum(row.share * row.error for row in rows) or 1.0
    for row in rows:
        part = row.share * row.error / total
        figures = (f"{row.share:.1%}", f"{row.error:.4f}", f"{part:.1%}")
        table.add_row(f"{row.low:.3f} to {row.high:.3f}", *figures)
    print_table(table)


def comparison(experiment: Experiment, metrics: dict[str, Estimate]) -> list[str]:
    """The metrics with their intervals beside the paper's row."""
    row = experiment.row.figures if experiment.row else {}
    lines = [f"{experiment.name}: {experiment.title}"]
    for name, estimate in metrics.items():
        paper = f"   paper {row[name]:.4f}" if name in row else ""
        lines.append(f"  {name:<12} {estimate}{paper}")
    return lines
