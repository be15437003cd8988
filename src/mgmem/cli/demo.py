"""``mgmem demo``: what ``make run`` shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mgmem.cli.evaluate import comparison, score
from mgmem.errors import UsageError
from mgmem.experiments import count_parameters
from mgmem.experiments.records import shipped_weights
from mgmem.experiments.trained import load
from mgmem.model import Model
from mgmem.tasks.mapping import Mapping
from mgmem.training.evaluation import query_steps

_CANDIDATES = ("mapping-15-small", "mapping-9")
_FRAMES = 40


@dataclass(frozen=True)
class Demo:
    """Evaluate the shipped mapping memory on mazes it never saw, and draw what it remembers."""

    episodes: int = 300
    """Fresh mazes."""
    out: Path = Path("figures")
    """Folder for the picture."""
    quiet: bool = False
    """Show no progress."""


def run(arguments: Sequence[str]) -> None:
    """Parse, evaluate, draw."""
    options = tyro.cli(Demo, prog="mgmem demo", args=list(arguments))
    if options.episodes < 2:
        raise UsageError(f"--episodes {options.episodes}: an interval needs at least 2")
    trained = load(_shipped())
    experiment, task, model = trained.experiment, trained.task, trained.model
    assert isinstance(task, Mapping)
    print(
        f"A memory of {model.cells:,} cells and {count_parameters(model):,} parameters walks "
        f"through {options.episodes} mazes\nthat it has never seen, {task.episode_length} steps "
        f"each, and says where it saw a patch of {task.queries[0]}x{task.queries[0]} cells.\n"
    )
    started = time.monotonic()
    metrics = score(trained, options.episodes, options.quiet)
    for line in comparison(experiment, metrics):
        print(line)
    print(f"\n{options.episodes} mazes in {time.monotonic() - started:.0f} s")
    path = options.out / f"{experiment.name}.png"
    _draw(model, task, experiment.name, path)
    print(f"what it remembers of the first: {path.resolve()}")
    print(f"the whole walk as an animation: mgmem show {experiment.name}")
    print("walk through one yourself, in the browser: mgmem play")


def _shipped() -> str:
    for name in _CANDIDATES:
        if shipped_weights(name) is not None:
            return name
    raise UsageError(
        f"no weights of {' or '.join(_CANDIDATES)} are shipped with this installation: "
        f"`mgmem train {_CANDIDATES[-1]}` makes some in minutes, `mgmem show RUN` draws them"
    )


def _draw(model: Model, task: Mapping, name: str, path: Path) -> None:
    from mgmem.report.style import save_figure  # first: says what to do if matplotlib is missing

    from mgmem.report.map_view import choose_view  # isort: skip
    from mgmem.report.memory import remember  # isort: skip
    from mgmem.report.memory_figure import draw_moment  # isort: skip

    steps = query_steps(task.episode_length, _FRAMES).tolist()
    history = remember(model, task, 0, steps, name=name)
    telling = history.moments[history.telling()].step
    view = choose_view(model, task)
    shown = remember(model, task, 0, [telling], name=name, view=view)
    save_figure(draw_moment(shown), path)
