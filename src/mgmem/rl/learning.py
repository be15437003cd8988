"""From the first update to the last: evaluation, checkpoints, logs, limits, for every learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mgmem.errors import UsageError
from mgmem.rl.policy import Policy
from mgmem.training import checkpoint
from mgmem.training.progress import Report, Reporter
from mgmem.training.signals import stop_signals
from mgmem.training.weights import save_weights

DECIDES = "area"
"""The validation metric that decides which weights are best: mean coverage over a walk."""


class Learner(Protocol):
    """Something that gets better with every update."""

    done: int
    """Updates so far."""
    steps: int
    """Environment steps so far, of all walks together."""

    @property
    def policy(self) -> Policy:
        """What is learned."""

    def update(self) -> dict[str, float]:
        """Learn a little; returns what there is to log."""

    def checkpoint(self) -> dict[str, Any]:
        """What is needed to go on later."""

    def restore(self, content: dict[str, Any]) -> None:
        """The inverse of ``checkpoint``."""

    def close(self) -> None:
        """Leave nothing running."""


@dataclass(frozen=True)
class Limits:
    """When to stop before the end, and how often to evaluate and to save."""

    updates: int
    max_updates: int | None = None
    max_minutes: float | None = None
    evaluate_every: int = 25
    checkpoint_seconds: float = 60.0


@dataclass
class Progress:
    """What a run has been through; part of the checkpoint."""

    seconds: float = 0.0
    best: float | None = None
    curve: list[dict[str, float]] = field(default_factory=list)


def learn(
    learner: Learner,
    evaluate: Callable[[], dict[str, float]],
    folder: Path,
    about: dict[str, Any],
    limits: Limits,
    reporter: Reporter,
) -> Progress:
    """Run a learner in a run folder, from its newest checkpoint if it holds one.

    evaluate: scores the policy as it is; ``DECIDES`` is one of its metrics. about: identifies
    the run; a checkpoint of another is refused, whatever its "command" was.
    """
    progress = _resume(learner, folder, about, reporter)
    last = min(limits.updates, limits.max_updates or limits.updates)
    started = saved = time.monotonic()
    before, first = progress.seconds, learner.done
    try:
        with stop_signals() as stopped:
            while learner.done < last and not stopped():
                values = learner.update()
                now = time.monotonic()
                progress.seconds = before + now - started
                speed = (learner.done - first) / (now - started)
                _tell(reporter, learner, values, progress, last, speed)
                if learner.done % limits.evaluate_every == 0 or learner.done == last:
                    _evaluate(learner, evaluate, folder, about, progress, reporter)
                if limits.max_minutes is not None and now - started > 60 * limits.max_minutes:
                    break
                if now - saved > limits.checkpoint_seconds:
                    _save(learner, folder, about, progress)
                    saved = now
        progress.seconds = before + time.monotonic() - started
        _save(learner, folder, about, progress)
    finally:
        learner.close()
    return progress


def _resume(learner: Learner, folder: Path, about: dict[str, Any], reporter: Reporter) -> Progress:
    content, complaints = checkpoint.newest(folder)
    for complaint in complaints:
        reporter.say(complaint)
    if content is None:
        return Progress()
    was = content["about"]
    odd = [key for key in about if key != "command" and was.get(key) != about[key]]
    if odd:
        changed = ", ".join(f"{key}: {was.get(key)} there, {about[key]} here" for key in odd)
        raise UsageError(f"{folder} holds another run ({changed}): give another --folder")
    learner.restore(content["learner"])
    reporter.say(f"going on from update {learner.done:,} in {folder}")
    return Progress(**content["progress"])


def _save(learner: Learner, folder: Path, about: dict[str, Any], progress: Progress) -> None:
    content = {"about": about, "learner": learner.checkpoint(), "progress": asdict(progress)}
    checkpoint.save(folder, learner.done, content)


def _tell(
    reporter: Reporter,
    learner: Learner,
    values: dict[str, float],
    progress: Progress,
    last: int,
    speed: float,
) -> None:
    latest = progress.curve[-1] if progress.curve else {}
    metric = f"reward/step {values['reward_per_step']:.3f}"
    if latest:
        metric += f"  coverage {latest['coverage']:.3f}"
    reporter.show(
        Report(
            stage="",
            update=learner.done,
            updates=last,
            steps=learner.steps,
            loss=values["value_loss"],
            metric=metric,
            rate=values["rate"],
            horizon="",
            speed=speed,
            left=(last - learner.done) / speed,
        )
    )
    _record(reporter, learner, values)


def _record(reporter: Reporter, learner: Learner, values: dict[str, float]) -> None:
    reporter.record(learner.done, {"update": learner.done, "steps": learner.steps, **values})


def _evaluate(
    learner: Learner,
    evaluate: Callable[[], dict[str, float]],
    folder: Path,
    about: dict[str, Any],
    progress: Progress,
    reporter: Reporter,
) -> None:
    """Score on validation mazes; keep the best weights."""
    scores = evaluate()
    point = {"update": learner.done, "steps": learner.steps, "seconds": progress.seconds, **scores}
    progress.curve.append(point)
    _record(reporter, learner, {f"valid/{key}": value for key, value in scores.items()})
    if progress.best is None or scores[DECIDES] > progress.best:
        progress.best = scores[DECIDES]
        trained = {"updates": learner.done, "steps": learner.steps, "seconds": progress.seconds}
        weights = {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}
        save_weights(folder / "best.safetensors", weights, {**about, "trained": trained})
