"""``mgmem train NAME``."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, find
from mgmem.experiments.start import begin, go_on, resume
from mgmem.tasks.base import Metric
from mgmem.training.content import newest
from mgmem.training.device import Amp, DeviceName, pick_device, set_threads
from mgmem.training.distributed import processes
from mgmem.training.folder import writing
from mgmem.training.loop import Limits, Trainer, check_lessons
from mgmem.training.progress import Reporter
from mgmem.training.recipe import Recipe, Stage


@dataclass(frozen=True)
class Train:
    """Train an experiment, stage by stage. A run folder that exists is resumed; Ctrl-C saves."""

    name: tyro.conf.Positional[str]
    """Name of the experiment, as `mgmem list` shows it."""
    task: tuple[str, ...] = ()
    """Changes to the task, such as world=13 or motion=random path_length=300."""
    recipe: Literal["fast", "paper"] = "fast"
    """Settings to start from: ours, or the paper's. The stages below are this recipe's."""
    seed: int = 0
    """Seed of the initial weights and of the stream of training episodes."""
    folder: Path | None = None
    """Run folder for checkpoints and logs; default runs/NAME-RECIPE-SEED."""
    resume: bool = True
    """Go on from the folder's newest checkpoint; --no-resume insists on an unused folder."""
    go_on: bool = False
    """Begin with the shipped weights of this row, at the first stage of the recipe that they have
    not been through."""
    max_updates: int | None = None
    """Stop after so many updates in all; schedules stay as they are."""
    max_minutes: float | None = None
    """Stop after so many minutes of this call."""
    until: str | None = None
    """Stop when the validation metric is good enough, such as f>=0.97 or error<=0.01."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    device: DeviceName = "auto"
    """Where to compute; auto: a GPU where there is one."""
    amp: Amp = "none"
    """bf16: compute in bfloat16 where that is safe."""
    threads: int | None = None
    """Threads of computation; default: all cores (with torchrun: all cores over processes)."""
    quiet: bool = False
    """Print nothing but errors."""

    def chosen(self, recipe: Recipe) -> Recipe:
        """The recipe with what the command line changed of it."""
        settings: Any = self.settings  # type: ignore[attr-defined]  # made by `_with_stages`
        stages = tuple(getattr(settings, stage.name) for stage in recipe.stages)
        return Recipe(stages, settings.start)


def run(arguments: Sequence[str]) -> None:
    """Parse and train."""
    if any(word.startswith("explore-") for word in arguments):
        from mgmem.cli import explore  # needs gymnasium, which is an extra

        return explore.train(arguments)
    options, recipe = parse(arguments)
    experiment = find(options.name)
    changes = parse_changes(options.task)
    _check(options)
    device = pick_device(options.device)
    with processes(device) as share:
        threads = set_threads(options.threads, share.world)
        folder = options.folder or Path("runs") / f"{options.name}-{options.recipe}-{options.seed}"
        held, _ = newest(folder, experiment.task().metric.name)
        if held is not None:  # it holds all that was begun with, whatever has become of that
            begun = resume(experiment, options.seed, changes, held if options.go_on else {})
        elif options.go_on:
            begun = go_on(experiment, options.recipe, options.seed, recipe)
        else:
            begun = begin(experiment, options.seed, recipe.start, changes)
        task = begun.task
        until = parse_goal(options.until, task.metric)
        limits = Limits(options.max_updates, options.max_minutes, until, options.checkpoint_seconds)
        about = {
            "experiment": experiment.name,
            "recipe": options.recipe,
            "seed": options.seed,
            **({"task": changes} if changes else {}),
            **({"after": begun.after} if begun.after else {}),
        }
        check_lessons(recipe, task, share)
        told = None if share.rank else folder
        with (
            writing(folder, options.resume, share.rank),
            Reporter(told, options.name, recipe.updates, options.quiet) as reporter,
        ):
            stages = ", ".join(f"{s.name} ({s.updates:,} updates)" for s in recipe.stages)
            reporter.say(f"{experiment.name} on {device}, {threads}. Stages: {stages}")
            command = shlex.join(["mgmem", "train", *without_whereabouts(arguments)])
            reporter.log({"command": command, "threads": threads, "recipe": recipe.plain()})
            trainer = Trainer(
                begun.model.to(device),
                task,
                recipe,
                folder,
                about,
                command,
                seed=options.seed,
                share=share,
                progress=begun.progress,
                amp=options.amp,
                reporter=reporter,
            )
            trainer.run(limits)
            reporter.say(f"{trainer.summary()}. Run folder: {folder}")


def _check(options: Train) -> None:
    for name, least in (("max_updates", 1), ("max_minutes", 0), ("checkpoint_seconds", 0)):
        value = getattr(options, name)
        if value is not None and not (least <= value < float("inf") and value > 0):
            raise UsageError(f"--{name.replace('_', '-')} {value}: give a number above 0")
    if options.go_on and options.task:
        raise UsageError("--go-on goes on with the task that the shipped weights know: no --task")
    if not 0 <= options.seed < 2**63:
        raise UsageError(f"--seed {options.seed}: give an integer from 0 to 2^63 - 1")


def parse_changes(words: Sequence[str]) -> dict[str, str]:
    """{"world": "13"} from ["world=13"]."""
    for word in words:
        if "=" not in word:
            raise UsageError(f"--task {word!r}: write NAME=VALUE, such as world=13")
    return dict(word.split("=", 1) for word in words)


def parse_goal(text: str | None, metric: Metric) -> float | None:
    """The number in "f>=0.97"; metric and direction must be the task's own."""
    if text is None:
        return None
    key, sign = metric.name, ">=" if metric.higher_is_better else "<="
    match = re.fullmatch(rf"\s*{key}\s*{sign}\s*([0-9]*\.?[0-9]+)\s*", text)
    if match is None:
        raise UsageError(f"--until {text!r}: for this task write {key}{sign}NUMBER")
    return float(match[1])


def parse(arguments: Sequence[str]) -> tuple[Train, Recipe]:
    """Options and recipe; the experiment decides the stages, so its name is looked for first."""
    asks_for_help = not arguments or {"-h", "--help"} & set(arguments)
    name = _name_among(arguments)
    if name is None and asks_for_help:
        name = "mapping-9"  # its stages stand for all
    elif name is None:
        raise UsageError("name an experiment to train; `mgmem list` shows them")
    recipe = find(name).recipe(_value_of("--recipe", arguments) or "fast")
    options = tyro.cli(
        _with_stages(recipe),
        prog="mgmem train",
        args=list(arguments),
        config=(tyro.conf.AvoidSubcommands,),
        description=Train.__doc__,
    )
    return options, options.chosen(recipe)


def _with_stages(recipe: Recipe) -> type[Train]:
    """The options, with the settings of every stage of ``recipe`` and of no other."""
    parts: list[tuple[str, Any, Any]] = [("start", type(recipe.start), recipe.start)]
    parts += [(stage.name, Stage, stage) for stage in recipe.stages]
    settings: Any = dataclasses.make_dataclass("Settings", parts, frozen=True)
    own = [("settings", Annotated[settings, tyro.conf.arg(name="")], settings())]
    return dataclasses.make_dataclass("Train", own, bases=(Train,), frozen=True)


def _name_among(arguments: Sequence[str]) -> str | None:
    """The experiment's name, wherever it stands; else a word that is no option's value."""
    known = [word for word in arguments if word in EXPERIMENTS]
    alone = [
        word
        for before, word in pairwise(["", *arguments])
        if not word.startswith("-") and not before.startswith("--")
    ]
    return next(iter([*known, *alone]), None)


def _value_of(flag: str, arguments: Sequence[str]) -> str | None:
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


_WHEREABOUTS = ("--folder", "--max-minutes", "--checkpoint-seconds", "--threads", "--device")
_SWITCHES = ("--quiet", "--no-quiet", "--resume", "--no-resume")


def without_whereabouts(arguments: Sequence[str]) -> list[str]:
    """A command's words without those that say only where, how long and how loud to run."""
    kept, skip = [], False
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        if not skip and flag not in (*_WHEREABOUTS, *_SWITCHES):
            kept.append(word)
        skip = not skip and flag in _WHEREABOUTS and "=" not in word
    return kept
