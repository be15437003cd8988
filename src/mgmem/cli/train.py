"""``mgmem train NAME``."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import nn

from mgmem.cli.evaluate import locate, portable, trained_so_far
from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, Experiment, find
from mgmem.nn.conv import MultigridConv
from mgmem.training.distributed import processes
from mgmem.training.loop import Budget, Limits, Trainer
from mgmem.training.progress import Reporter
from mgmem.training.recipe import Recipe
from mgmem.training.weights import fill, load_weights


@dataclass(frozen=True)
class Train:
    """Train an experiment. A run folder that exists is resumed; Ctrl-C saves and stops."""

    name: tyro.conf.Positional[str]
    """Name of the experiment, as `mgmem list` shows it."""
    settings: Annotated[Recipe, tyro.conf.arg(name="")]
    task: tuple[str, ...] = ()
    """Changes to the task, such as world=13 or motion=random path_length=300."""
    recipe: Literal["fast", "paper"] = "fast"
    """Settings to start from: ours, or the paper's. The defaults below are this recipe's."""
    seed: int = 0
    """Seed of the initial weights and of the stream of training episodes."""
    start: str | None = None
    """Start from trained weights: an experiment's name (shipped), a run folder or a file."""
    folder: Path | None = None
    """Run folder for checkpoints and logs; default runs/NAME-RECIPE-SEED."""
    resume: bool = True
    """Go on from the folder's newest checkpoint; --no-resume insists on an unused folder."""
    max_updates: int | None = None
    """Stop after so many updates in all; the schedule stays that of --updates."""
    max_minutes: float | None = None
    """Stop after so many minutes of this call."""
    until: str | None = None
    """Stop when the validation metric is good enough, such as f>=0.97 or error<=0.01."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    threads: int | None = None
    """Threads of computation; default: all cores (with torchrun: all cores over processes)."""
    quiet: bool = False
    """Print nothing but errors."""


def run(arguments: Sequence[str]) -> None:
    """Parse and train."""
    options = _parse(arguments)
    experiment = find(options.name)
    task, model = experiment.build(options.seed, parse_changes(options.task))
    _initialise(model, options)
    before = None if options.start is None else _start_from(options.start, model)
    score = task.new_score()
    until = parse_goal(options.until, score.key, score.higher_is_better)
    limits = Limits(options.max_updates, options.max_minutes, until, options.checkpoint_seconds)
    folder = options.folder or Path("runs") / f"{options.name}-{options.recipe}-{options.seed}"
    with processes() as share:
        threads = options.threads or max(1, (os.cpu_count() or 1) // share.world)
        torch.set_num_threads(threads)
        _prepare(folder, options.resume)
        quiet = options.quiet or share.rank > 0
        with Reporter(folder, options.name, options.settings.updates, quiet) as reporter:
            trainer = Trainer(
                model,
                task,
                options.settings,
                folder,
                about(experiment, options),
                seed=options.seed,
                share=share,
                before=before,
                reporter=reporter,
            )
            progress = trainer.run(limits)
            if share.rank == 0:
                best = "" if progress.best is None else f", best {score.key} {progress.best:.4f}"
                reporter.say(
                    f"stopped at update {progress.update:,} after {progress.seconds / 60:.1f} "
                    f"minutes{best}. Run folder: {folder}"
                )


def about(experiment: Experiment, options: Train) -> dict[str, Any]:
    """What identifies a run; travels with its checkpoints and weights."""
    changes, start = parse_changes(options.task), options.start
    if start is not None and start not in EXPERIMENTS:
        start = portable(Path(start))
    return {
        "experiment": experiment.name,
        "recipe": options.recipe,
        "seed": options.seed,
        **({"task": changes} if changes else {}),
        **({"start": start} if start else {}),
    }


def _initialise(model: nn.Module, options: Train) -> None:
    """Start the MG-conv layers as the recipe says; the model has them as the library does."""
    if options.settings.init == "he":
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        for module in model.modules():
            if isinstance(module, MultigridConv):
                module.reset_parameters(options.settings.init)


def _start_from(what: str, model: nn.Module) -> Budget:
    """Fill the model with trained weights; what they took counts on."""
    path = locate(what)
    weights, origin = load_weights(path)
    fill(model, weights, path)
    before = trained_so_far(path, origin)
    if before is None:
        raise UsageError(f"--start {what}: {path} does not say how long it was trained")
    return before


def parse_changes(words: Sequence[str]) -> dict[str, str]:
    """{"world": "13"} from ["world=13"]."""
    for word in words:
        if "=" not in word:
            raise UsageError(f"--task {word!r}: write NAME=VALUE, such as world=13")
    return dict(word.split("=", 1) for word in words)


def parse_goal(text: str | None, key: str, higher_is_better: bool) -> float | None:
    """The number in "f>=0.97"; metric and direction must be the task's own."""
    if text is None:
        return None
    sign = ">=" if higher_is_better else "<="
    match = re.fullmatch(rf"\s*{key}\s*{sign}\s*([0-9.]+)\s*", text)
    if match is None:
        raise UsageError(f"--until {text!r}: for this task write {key}{sign}NUMBER")
    return float(match[1])


def _parse(arguments: Sequence[str]) -> Train:
    """The experiment decides the defaults, so its name is looked at first."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is None:
        settings, recipe, default_name = Recipe(), "fast", tyro.MISSING
    else:
        recipe = _value_of("--recipe", arguments) or "fast"
        settings, default_name = find(name).recipe(recipe), name
    return tyro.cli(
        Train,
        prog="mgmem train",
        args=list(arguments),
        default=Train(name=default_name, settings=settings, recipe=recipe),  # type: ignore[arg-type]
    )


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def _prepare(folder: Path, resume: bool) -> None:
    """Make the run folder; refuse what would overwrite a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the run folder {folder} can not be made: {error.strerror}") from None
    with contextlib.suppress(StopIteration):
        found = next(folder.glob("checkpoint-*.ckpt"))
        if not resume:
            raise UsageError(f"{folder} holds a run ({found.name}): give another --folder")
