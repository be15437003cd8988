"""``mgmem evaluate NAME | RUN FOLDER | FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from mgmem.cli.map_table import print_map
from mgmem.cli.tables import new_table, print_table
from mgmem.cli.train import parse_changes
from mgmem.errors import UsageError
from mgmem.experiments import Experiment
from mgmem.experiments import records as records_
from mgmem.experiments.scored import Scored
from mgmem.experiments.trained import Trained, load
from mgmem.tasks.base import Batch, Estimate, FiniteTask, Task
from mgmem.tasks.gap_scores import GapRow, GapScore
from mgmem.tasks.map_parts import AgeParts, DistanceParts, Parts, PatchParts
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.place_scores import PlaceRow, PlaceScore
from mgmem.tasks.recall import AssociativeRecall
from mgmem.tasks.seeds import SeedStream, Split
from mgmem.tasks.sort import PrioritySort
from mgmem.training.device import Amp, DeviceName, pick_device
from mgmem.training.evaluation import TEST_SEED, evaluate

_EPISODES = 5000
By = Literal["patch", "age", "distance", "gap", "place"]
Apart = Parts | GapScore | PlaceScore


@dataclass(frozen=True)
class Evaluate:
    """Score trained weights on fresh test episodes, which training never draws from."""

    what: tyro.conf.Positional[str]
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    episodes: int | None = None
    """Fresh test episodes; default: 5,000, or all where there are only so many."""
    split: Split = "test"
    """Episodes to score. Where there are only so many, those of training show what was learned by
    heart."""
    record: bool = False
    """Write results/NAME/RECIPE-seedN.json; needs a run folder, for its curve and budget."""
    publish: bool = False
    """Make the weights the experiment's shipped ones; refused if the shipped are better."""
    force: bool = False
    """Publish even so: worse, unrecorded, or scored on few episodes."""
    half: bool = False
    """Round the weights to half precision first: the scores are those of the smaller file."""
    task: tuple[str, ...] = ()
    """Another task than they were trained on, such as motion=random path_length=1000."""
    by: By | None = None
    """Also print the score in parts: mapping's by patch (common and rare), by age of the memory or
    by distance from the start, sorting's by gap to the nearest priority, recall's by place of the
    item that is named."""
    map: bool = False
    """Also measure whether the map is in the memory, on at most 50 of the episodes (mapping)."""
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
    changes = parse_changes(options.task)
    if changes and (options.record or options.publish):
        raise UsageError("--record and --publish are for the task itself: leave --task out")
    if options.split != "test" and (options.record or options.publish):
        raise UsageError("--record and --publish are for test episodes: leave --split out")
    trained = load(options.what, pick_device(options.device), changes)
    run_folder = Path(options.what)
    if options.record and not run_folder.is_dir():
        raise UsageError("--record needs a run folder with a checkpoint, for its curve and budget")
    if options.half:
        _round_to_half(trained.model)
    apart = _scores_apart(options, trained.task)
    episodes = _count(trained.task, options.episodes, options.split)
    seen = list(apart.values())
    metrics = score(trained, episodes, options.quiet, seen, options.amp, options.split)
    for line in comparison(trained.experiment, metrics, options.task):
        print(line)
    _print_apart(apart.get(options.by or ""))
    if options.map:
        print_map(trained.model, trained.task, episodes)
    results = options.results or records_.results_folder()
    parts = {by: s.rows() for by, s in apart.items() if not isinstance(s, GapScore | PlaceScore)}
    scored = Scored(trained, metrics, episodes, options.half, parts)
    if options.record:
        print(f"recorded in {scored.record(run_folder).write(results)}")
    if options.publish:
        scored.publish(results, force=options.force)
        print(f"published as the weights of {trained.experiment.name}")


def _count(task: Task, wanted: int | None, split: Split) -> int:
    """How many episodes are scored."""
    if isinstance(task, FiniteTask):
        size = task.size(split)
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
    apart: Sequence[Apart] = (),
    amp: Amp = "none",
    split: Split = "test",
) -> dict[str, Estimate]:
    """Metrics on the first ``episodes`` of a split; each of ``apart`` sees all answers."""

    def watch(answers: tuple[Tensor, ...], batch: Batch, start: int) -> None:
        for parts in apart:
            parts.add(answers, batch, start)

    hidden = quiet or not sys.stderr.isatty()
    with Progress(transient=True, disable=hidden, console=Console(file=sys.stderr)) as bar:
        row = bar.add_task("evaluating", total=episodes)
        return evaluate(
            trained.model,
            trained.task,
            SeedStream(TEST_SEED, split),
            episodes,
            amp=amp,
            progress=lambda done: bar.update(row, completed=done),
            watch=watch,
        ).result()


def _scores_apart(options: Evaluate, task: Task) -> dict[str, Apart]:
    """What is scored in parts: all that a record holds, else only what is asked for."""
    known: dict[str, Apart] = {}
    if isinstance(task, Mapping):
        reach = task.world // 2 - 1
        known = {
            "patch": PatchParts(),
            "age": AgeParts(),
            "distance": DistanceParts(task.grid, reach),
        }
    elif isinstance(task, PrioritySort):
        known = {"gap": GapScore(task.spread)}
    elif isinstance(task, AssociativeRecall):
        known = {"place": PlaceScore()}
    if options.by is not None and options.by not in known:
        there = f"there is {', '.join(known)}" if known else "it is not scored in parts"
        raise UsageError(f"--by {options.by}: not for {task.name}; {there}")
    return known if options.record else {by: known[by] for by in known if by == options.by}


def _print_apart(apart: Apart | None) -> None:
    if isinstance(apart, GapScore):
        names = [(f"{row.low:.3f} to {row.high:.3f}", row) for row in apart.rows()]
        _print_errors("nearest priority", "items", names)
    elif isinstance(apart, PlaceScore):
        _print_errors("item named", "questions", [(str(row.place), row) for row in apart.rows()])
    elif apart is not None:
        _print_parts(apart)


def _print_parts(parts: Parts) -> None:
    share = "marks" if isinstance(parts, DistanceParts) else "queries"
    table = new_table(parts.title, share, "precision", "recall", "F")
    for part in parts.rows():
        figures = (f"{value:.4f}" for value in (part.precision, part.recall, part.f))
        table.add_row(part.name, f"{part.share:.1%}", *figures)
    print_table(table)


def _print_errors(title: str, what: str, rows: Sequence[tuple[str, GapRow | PlaceRow]]) -> None:
    table = new_table(title, what, "error", "part of all errors")
    total = sum(row.share * row.error for _, row in rows) or 1.0
    for name, row in rows:
        part = row.share * row.error / total
        table.add_row(name, f"{row.share:.1%}", f"{row.error:.4f}", f"{part:.1%}")
    print_table(table)


def comparison(
    experiment: Experiment, metrics: dict[str, Estimate], changes: Sequence[str] = ()
) -> list[str]:
    """The metrics with their intervals beside the paper's row; another task has none."""
    row = experiment.row.figures if experiment.row and not changes else {}
    lines = [f"{experiment.name}: {' '.join(changes) or experiment.title}"]
    for name, estimate in metrics.items():
        paper = f"   paper {row[name]:.4f}" if name in row else ""
        lines.append(f"  {name:<12} {estimate}{paper}")
    return lines
