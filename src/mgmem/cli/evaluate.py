"""``mgmem evaluate NAME | RUN FOLDER | FILE``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.progress import track
from torch import Tensor, nn

from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, count_parameters, find
from mgmem.experiments import records as rec
from mgmem.tasks.base import Batch, Estimate, Task
from mgmem.tasks.gap_scores import GapScore
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.patch_scores import PatchScore
from mgmem.tasks.seeds import SeedStream
from mgmem.tasks.sort import PrioritySort
from mgmem.training import checkpoint
from mgmem.training.evaluation import TEST_SEED, Watch, evaluate
from mgmem.training.loop import Budget, spent_budget
from mgmem.training.recipe import Recipe
from mgmem.training.weights import fill, load_weights, save_weights


@dataclass(frozen=True)
class Evaluate:
    """Score trained weights on fresh test episodes, which training never draws from."""

    what: tyro.conf.Positional[str]
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    episodes: int = 5000
    """Fresh test episodes."""
    record: bool = False
    """Write results/NAME/RECIPE-seedN.json; needs a run folder, for its curve and budget."""
    publish: bool = False
    """Copy the weights into the package as the experiment's shipped ones."""
    half: bool = False
    """Round the weights to half precision first: the scores are those of the smaller file."""
    patches: bool = False
    """Also print the score apart for common and for rare patches (mapping)."""
    gaps: bool = False
    """Also print the error apart for close and for distant priorities (sorting)."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""
    quiet: bool = False
    """Show no progress."""


def run(arguments: Sequence[str]) -> None:
    """Parse and evaluate."""
    options = tyro.cli(Evaluate, prog="mgmem evaluate", args=list(arguments))
    if options.episodes < 2:
        raise UsageError(f"--episodes {options.episodes}: an interval needs at least 2")
    path = locate(options.what)
    experiment, task, model, about = load_model(path)
    if options.half:
        _round_to_half(model)
    apart = _score_apart(options, task)

    def watch(answers: tuple[Tensor, ...], batch: Batch) -> None:
        if apart is not None:
            apart.add(answers, batch)

    metrics = score(model, task, options.episodes, options.quiet, watch)
    for line in comparison(experiment, metrics):
        print(line)
    if isinstance(apart, PatchScore):
        _print_patches(apart)
    elif apart is not None:
        _print_gaps(apart)
    if options.record:
        folder = options.results or rec.results_folder()
        print(f"recorded in {_record(options, experiment, about, model, metrics).write(folder)}")
    if options.publish:
        target = rec.weights_folder() / f"{experiment.name}.safetensors"
        target.parent.mkdir(exist_ok=True)
        trained = trained_so_far(path, about)
        about = about if trained is None else {**about, "trained": asdict(trained)}
        save_weights(target, model.state_dict(), about, half=options.half)
        print(f"published as the weights of {experiment.name}")


def _round_to_half(model: nn.Module) -> None:
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.half())


def locate(what: str) -> Path:
    """The weights file meant by a name, a run folder or a path."""
    if what in EXPERIMENTS:
        shipped = rec.shipped_weights(what)
        if shipped is None:
            raise UsageError(f"no weights are shipped for {what}: `mgmem train {what}` makes some")
        return shipped
    path = Path(what)
    if path.is_dir():
        if not (path / "best.safetensors").is_file():
            raise UsageError(f"{path} holds no best.safetensors: let it train until it evaluates")
        return path / "best.safetensors"
    if path.exists():
        return path
    find(what)  # an unknown name: says which is nearest
    raise UsageError(f"{what}: no such experiment, run folder or file")


def load_model(path: Path) -> tuple[Experiment, Task, nn.Module, dict[str, Any]]:
    """The experiment that a weights file belongs to, and its model with these weights."""
    weights: dict[str, Tensor]
    weights, about = load_weights(path)
    experiment = find(str(about.get("experiment")))
    task, model = experiment.build(options=about.get("task"))
    fill(model, weights, path)
    return experiment, task, model.eval(), about


def trained_so_far(path: Path, about: dict[str, Any]) -> Budget | None:
    """What weights were trained with: as they say, or as their run folder does; else None."""
    if "trained" in about:
        return Budget(**about["trained"])
    content, _ = checkpoint.newest(path.parent)
    if content is None:
        return None
    spent = spent_budget(content["progress"], content["feed"]["steps"])
    # With every setting: this command has to mean the same when the defaults have changed.
    settings, updates = _settings(content), content["progress"]["update"]
    command = _train_command(about, settings, updates, whole=True)
    spent.commands = [*spent.commands, f"{command} --folder {portable(path.parent)}"]
    return spent


def score(
    model: nn.Module,
    task: Task,
    episodes: int,
    quiet: bool,
    watch: Watch = lambda answers, batch: None,
) -> dict[str, Estimate]:
    """Metrics on the first ``episodes`` test episodes; ``watch`` sees all answers."""
    done = 0
    total = range(episodes)
    bar = iter(track(total, "evaluating", transient=True, disable=quiet or not sys.stderr.isatty()))

    def advance(count: int) -> None:
        nonlocal done
        while done < count:
            next(bar, None)
            done += 1

    stream = SeedStream(TEST_SEED, "test")
    return evaluate(model, task, stream, episodes, progress=advance, watch=watch).result()


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


def _record(
    options: Evaluate,
    experiment: Experiment,
    about: dict[str, Any],
    model: nn.Module,
    metrics: dict[str, Estimate],
) -> rec.Record:
    folder = Path(options.what)
    content, _ = checkpoint.newest(folder) if folder.is_dir() else (None, [])
    if content is None:
        raise UsageError("--record needs a run folder with a checkpoint, for its curve and budget")
    progress = content["progress"]
    spent = spent_budget(progress, content["feed"]["steps"])
    return rec.Record(
        experiment=experiment.name,
        recipe=about["recipe"],
        seed=about["seed"],
        command=_train_command(about, _settings(content), progress["update"]),
        settings=_settings(content),
        commit=rec.commit(),
        date=rec.today(),
        machine=rec.machine(),
        parameters=count_parameters(model),
        cells=int(model.cells),  # type: ignore[arg-type]
        updates=spent.updates,
        steps=spent.steps,
        seconds=round(spent.seconds, 1),
        curve=progress["curve"],
        episodes=options.episodes,
        metrics={name: asdict(estimate) for name, estimate in metrics.items()},
        earlier=spent.commands,
    )


def _settings(content: dict[str, Any]) -> dict[str, Any]:
    """All settings of a checkpoint's run; those it did not know yet had their default's effect."""
    return asdict(Recipe(**content["recipe"]))


def _train_command(
    about: dict[str, Any], settings: dict[str, Any], updates: int, whole: bool = False
) -> str:
    """The command that trains these weights again, as far as they were trained.

    whole: with all settings, also those that are the defaults.
    """
    experiment = find(about["experiment"])
    command = ["mgmem", "train", experiment.name, "--recipe", about["recipe"]]
    command += ["--seed", str(about["seed"])]
    if about.get("task"):
        command += ["--task", *(f"{name}={value}" for name, value in about["task"].items())]
    if about.get("start"):
        command += ["--start", about["start"]]
    default = asdict(experiment.recipe(about["recipe"]))
    for key, value in settings.items():
        if whole or default.get(key) != value:
            flag = key.replace("_", "-")
            if isinstance(value, bool):
                command += [f"--{flag}" if value else f"--no-{flag}"]
            else:
                command += [f"--{flag}", str(value)]
    if updates < settings["updates"]:
        command += ["--max-updates", str(updates)]
    return shlex.join(command)


def portable(folder: Path) -> str:
    """A run folder as others would name it, wherever it lay."""
    return f"runs/{folder.name}"
