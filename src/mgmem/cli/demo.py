"""``mgmem demo``: what ``make run`` shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mgmem.cli.evaluate import comparison, load_model, score
from mgmem.errors import UsageError
from mgmem.experiments import count_parameters
from mgmem.experiments.records import shipped_weights
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
    experiment, task, model, _ = load_model(_shipped())
    assert isinstance(task, Mapping)
    print(
        f"A memory of {int(model.cells):,} cells and {count_parameters(model):,} parameters walks "  # type: ignore[arg-type]
        f"through {options.episodes} mazes\nthat it has never seen, {task.episode_length} steps "
        f"each, and says where it saw a patch of {task.queries[0]}x{task.queries[0]} cells.\n"
    )
    started = time.monotonic()
    metrics = score(model, task, options.episodes, options.quiet)
    for line in comparison(experiment, metrics):
        print(line)
    print(f"\n{options.episodes} mazes in {time.monotonic() - started:.0f} s")
    path = options.out / f"{experiment.name}.png"
    _draw(model, task, experiment.name, path)
    print(f"what it remembers of the first: {path.resolve()}")
    print(f"the whole walk as an animation: mgmem show {experiment.name}")


def _shipped() -> Path:
    for name in _CANDIDATES:
        found = shipped_weights(name)
        if found is not None:
            return found
    raise UsageError(
        f"no weights of {' or '.join(_CANDIDATES)} are shipped with this installation: "
        f"`mgmem train {_CANDIDATES[-1]}` makes some in minutes, `mgmem show RUN` draws them"
    )


def _draw(model: object, task: Mapping, name: str, path: Path) -> None:
    from mgmem.report.style import save_figure  # first: says what to do if matplotlib is missing

    from mgmem.report.memory import remember  # isort: skip
    from mgmem.report.memory_figure import draw_moment  # isort: skip

    steps = query_steps(task.episode_length, _FRAMES).tolist()
    history = remember(model, task, 0, steps, name=name)  # type: ignore[arg-type]
    save_figure(draw_moment(history, history.telling()), path)
