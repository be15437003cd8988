"""``mgmem show NAME | RUN FOLDER | FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from mgmem.errors import UsageError
from mgmem.experiments.trained import load
from mgmem.model import Model
from mgmem.report.map_view import choose_view
from mgmem.report.memory import remember
from mgmem.tasks.babi import Babi
from mgmem.tasks.base import Task
from mgmem.tasks.mapping import Mapping
from mgmem.training.evaluation import query_steps

_MOST_FRAMES = 90
_STRIP = 5


@dataclass(frozen=True)
class Show:
    """Draw what a trained memory remembers of an episode, as pictures and an animation."""

    what: tyro.conf.Positional[str]
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    episode: int = 0
    """Number of the test episode, from 0."""
    out: Path = Path("figures")
    """Folder for the files."""
    steps: tuple[int, ...] = ()
    """Steps to show side by side, from 1; the last also alone. Default: five, and a telling one."""
    animation: bool = True
    """Also write the whole episode as an animation."""
    format: Literal["gif", "mp4"] | None = None
    """Kind of animation; default: mp4 where ffmpeg is installed, else gif."""
    mean: bool = False
    """Show the mean over channels, and no maps: quick, and all that models without a map have."""


def run(arguments: Sequence[str]) -> None:
    """Parse and draw."""
    options = tyro.cli(Show, prog="mgmem show", args=list(arguments))
    from mgmem.report import style  # noqa: F401  # says so first if matplotlib is missing

    trained = load(options.what)
    experiment, task, model = trained.experiment, trained.task, trained.model
    if isinstance(task, Mapping):
        written = _show_mapping(options, experiment.name, task, model)
    elif isinstance(task, Babi):
        written = _show_story(options, experiment.name, task, model)
    else:
        written = _show_sequence(options, experiment.name, task, model)
    for path in written:
        print(f"written to {path}")


def _show_mapping(options: Show, name: str, task: Mapping, model: Model) -> list[Path]:
    from mgmem.report.dnc_memory import is_dnc
    from mgmem.report.memory_figure import draw_moment, draw_strip
    from mgmem.report.style import save_figure

    length = task.episode_length
    if any(not 1 <= step <= length for step in options.steps):
        raise UsageError(f"--steps {options.steps}: this experiment has steps 1 to {length}")
    strip = [step - 1 for step in options.steps] or query_steps(length, _STRIP).tolist()
    # Reading a map takes a hundred questions: only where it will be shown, or chosen from.
    all_along = options.animation or not options.steps
    frames = query_steps(length, _MOST_FRAMES).tolist() if all_along else []
    moments = sorted({*frames, *strip})
    view = None if options.mean else choose_view(model, task)
    history = remember(model, task, options.episode, moments, name=name, view=view)
    alone = history.at(strip[-1:] if options.steps else frames)
    stem = options.out / f"{name}-episode{options.episode}"
    picture = draw_moment(alone, alone.telling())
    written = [
        save_figure(picture, stem.with_name(f"{stem.name}.png")),
        save_figure(draw_strip(history.at(strip)), stem.with_name(f"{stem.name}-steps.png")),
    ]
    if is_dnc(model):
        from mgmem.report.dnc_figure import draw_dnc_memory
        from mgmem.report.dnc_memory import trace_dnc

        asked = [moment.step for moment in history.moments]
        trace = trace_dnc(model, task, options.episode, asked, name=name)
        figure = draw_dnc_memory(trace, history.at(strip))
        written.append(save_figure(figure, stem.with_name(f"{stem.name}-memory.png")))
    if options.animation:
        from mgmem.report.animation import animate, ffmpeg

        kind = options.format or ("mp4" if ffmpeg() else "gif")
        path = stem.with_name(f"{stem.name}.{kind}")
        written.append(animate(history.at(frames), path))
    return written


def _show_sequence(options: Show, name: str, task: Task, model: Model) -> list[Path]:
    from mgmem.report.sequences import answer_sequence, draw_sequence
    from mgmem.report.style import save_figure

    if options.steps:
        raise UsageError(f"--steps {options.steps}: {name} is asked at its end only; leave it out")
    figure = draw_sequence(answer_sequence(model, task, options.episode, name=name))
    return [save_figure(figure, options.out / f"{name}-episode{options.episode}.png")]


def _show_story(options: Show, name: str, task: Babi, model: Model) -> list[Path]:
    from mgmem.report.stories import draw_story, tell
    from mgmem.report.style import save_figure

    if options.steps:
        raise UsageError(f"--steps {options.steps}: a story is drawn whole; leave it out")
    figure = draw_story(tell(model, task, options.episode, name=name))
    return [save_figure(figure, options.out / f"{name}-episode{options.episode}.png")]
