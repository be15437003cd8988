"""The training loop: stages for any task and model; stops and resumes without a trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.model import Model
from mgmem.tasks.base import Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training import checkpoint
from mgmem.training.content import Budget, Progress, check_stage, newest, spent
from mgmem.training.device import Amp
from mgmem.training.distributed import agreed
from mgmem.training.evaluation import TEST_SEED, evaluate
from mgmem.training.feed import Share
from mgmem.training.progress import Report, Reporter
from mgmem.training.recipe import Recipe, flattened
from mgmem.training.signals import stop_signals
from mgmem.training.stage import StageRun, TrainingFailed, check_learns
from mgmem.training.weights import check_finite, fill, save_weights


@dataclass(frozen=True)
class Limits:
    """When to stop before the recipe's end, and how often to save."""

    max_updates: int | None = None
    max_minutes: float | None = None
    until: float | None = None
    """Value of the deciding validation metric that is good enough."""
    checkpoint_seconds: float = 60.0


class Trainer:
    """Trains a model on a task in a run folder; resumes if the folder holds a checkpoint."""

    def __init__(
        self,
        model: Model,
        task: Task,
        recipe: Recipe,
        folder: Path,
        about: dict[str, Any],
        command: str = "",
        *,
        seed: int = 0,
        share: Share | None = None,
        progress: Progress | None = None,
        amp: Amp = "none",
        reporter: Reporter,
    ) -> None:
        """``command``: what started the run, for its record.

        ``progress``: how far the model's weights have come, if they were trained.
        """
        self.model, self.task, self.recipe, self.folder = model, task, recipe, folder
        self.about, self.share, self.reporter = about, share or Share(), reporter
        self._seed, self._amp, self._command = seed, amp, command
        self.progress = progress or Progress()
        check_lessons(recipe, task, self.share)
        for stage in recipe.stages:
            check_learns(stage, model)
        self.current = self._begin(self.progress.stage)

    def _begin(self, index: int) -> StageRun:
        """A stage from its start, with the model's weights as they are."""
        stream = SeedStream(self._seed, "train", index)
        stage = self.recipe.stages[index]
        torch.manual_seed(self._seed + index)  # what modules draw themselves: dropout
        self._clock = (time.monotonic(), 0)
        return StageRun(stage, self.model, self.task, stream, self.share, self._amp)

    def run(self, limits: Limits) -> Progress:
        """Train until the recipe's end or a limit; leaves a checkpoint of the last update."""
        self._resume()
        before, started = self.progress.seconds, time.monotonic()
        saved, first = started, self._updates()
        with stop_signals() as stopped:
            while not self._finished(limits):
                self.current.step()
                now = time.monotonic()
                self.progress.seconds = before + now - started
                self._show((self._updates() - first) / (now - started))
                if self.current.due and self._evaluate(limits.until):
                    break
                if self.current.done and self._hand_on():
                    self._save()
                minutes = (now - started) / 60
                if agreed(stopped() or minutes > (limits.max_minutes or minutes)):
                    break
                if agreed(now - saved > limits.checkpoint_seconds):
                    self._save()
                    saved = now
        self.progress.seconds = before + time.monotonic() - started
        self._save()
        return self.progress

    def spent(self) -> Budget:
        """All that the weights took so far."""
        return spent(asdict(self.progress), self.current.update, self.current.feed.steps)

    def summary(self) -> str:
        """How the run stands, in a line."""
        best, minutes = self.progress.best, self.progress.seconds / 60
        score = "" if best is None else f", best {self.task.metric.name} {best:.4f}"
        return f"stopped at update {self._updates():,} after {minutes:.1f} minutes{score}"

    def _updates(self) -> int:
        """Updates of this run."""
        return self.progress.updates + self.current.update

    def _finished(self, limits: Limits) -> bool:
        if limits.max_updates is not None and self._updates() >= limits.max_updates:
            return True
        return self.current.done and self.progress.stage + 1 == len(self.recipe.stages)

    def _hand_on(self) -> bool:
        """Begin the next stage with the weights of the one that ended; False if it was the last."""
        old = self.current
        if self.progress.stage + 1 == len(self.recipe.stages):
            return False
        handed = old.weights()
        if old.stage.hands_on == "best" and old.best is not None:
            handed = old.best
        self.model.load_state_dict(handed)
        took = self.spent()
        took.seconds -= self.progress.seconds  # the run's own are counted once, in all
        self.progress.before = asdict(took)
        self.progress.updates += old.update
        self.progress.stage += 1
        self.current = self._begin(self.progress.stage)
        self.reporter.say(f"stage {old.stage.name} is done: on to {self.current.stage.name}")
        return True

    def _evaluate(self, until: float | None) -> bool:
        """Score on validation episodes; keep the best weights; True if good enough."""
        run, metric = self.current, self.task.metric
        live = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        weights = {name: tensor.clone() for name, tensor in run.weights().items()}
        self.model.load_state_dict(weights)
        stream, episodes = SeedStream(TEST_SEED, "valid"), run.stage.validation.episodes
        result = evaluate(self.model, self.task, stream, episodes, amp=self._amp).result()
        self.model.load_state_dict(live)
        value, took = result[metric.name].value, self.spent()
        better = metric.better(value, self.progress.best)
        point = {
            "update": took.updates,
            "steps": took.steps,
            "seconds": round(took.seconds, 1),
            "stage": self.progress.stage,
            "loss": run.loss,
            "rate": run.rate,
            **{name: estimate.value for name, estimate in result.items()},
        }
        self.progress.curve.append(point)
        if better:
            self.progress.best = value
            if run.stage.hands_on == "best":
                run.best = weights
            self._write("best weights", lambda: self._publish(weights))
        self._write("log", lambda: self.reporter.record(took.updates, point))
        self.reporter.say(
            f"update {self._updates():,}: {metric.name} {result[metric.name]} on {episodes} "
            f"validation episodes{' (best so far)' if better else ''}"
        )
        return until is not None and metric.meets(value, until)

    def _publish(self, weights: dict[str, Tensor]) -> None:
        if self.share.rank == 0:
            trained = {**self.about, "trained": asdict(self.spent())}
            save_weights(self.folder / "best.safetensors", weights, trained)

    def _show(self, speed: float) -> None:
        run, took, metric = self.current, self.spent(), self.task.metric.name
        curve = self.progress.curve
        self.reporter.show(
            Report(
                stage=run.stage.name if len(self.recipe.stages) > 1 else "",
                update=self._updates(),
                updates=self.recipe.updates,
                steps=took.steps,
                loss=run.loss,
                metric=f"{metric} {curve[-1][metric]:.4f}" if curve else "",
                rate=run.rate,
                horizon=str(run.feed.horizon),
                speed=speed,
                left=self._left(),
            )
        )

    def _left(self) -> float:
        """Seconds to the recipe's end, all episodes being whole, by what a step takes now."""
        run, (began, steps) = self.current, self._clock
        done = max(1, (run.feed.steps - steps) * run.stage.batch)
        rest = [(run.stage, run.stage.updates - run.update)]
        later = self.recipe.stages[self.progress.stage + 1 :]
        rest += [(stage, stage.updates) for stage in later]
        steps = sum(n * stage.batch * stage.lesson.steps(self.task) for stage, n in rest)
        return (time.monotonic() - began) / done * steps

    def _save(self) -> None:
        """Write a checkpoint; what can not be written, or is no number, ends the run instead."""
        state = self.current.state_dict()
        if self.share.rank:
            return
        weights = self.model.state_dict()
        for name, tensor in weights.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise TrainingFailed(
                    f"{name} is no longer finite at update {self._updates()}: try a lower rate; "
                    "the last checkpoint is whole"
                )
        content = {
            "about": self.about,
            "command": self._command,
            "recipe": self.recipe.plain(),
            "progress": asdict(self.progress),
            "stage": state,
            "model": weights,
            "random": torch.get_rng_state(),
        }
        updates = self._updates()
        self._write("checkpoint", lambda: checkpoint.save(self.folder, updates, content))

    def _write(self, what: str, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            raise TrainingFailed(
                f"the {what} of update {self._updates()} could not be written to {self.folder} "
                f"({error.strerror}); the checkpoint before is whole"
            ) from None

    def _resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        content, complaints = newest(self.folder, self.task.metric.name)
        for complaint in complaints:
            self.reporter.say(f"{complaint}: going on from the one before")
        if content is None:
            return
        check_same_run(content, self.about, self.recipe.plain(), self.folder)
        self._command = content["command"]  # the one that began the run
        self.progress = Progress(**content["progress"])
        self.current = self._begin(self.progress.stage)
        check_stage(content["stage"], self.current, self.folder)
        fill(self.model, content["model"], self.folder)
        check_finite(content["model"], self.folder)
        self.current.load_state_dict(content["stage"])
        self._clock = (time.monotonic(), self.current.feed.steps)
        torch.set_rng_state(content["random"])
        if self.current.done:  # the recipe has more stages than when this one came to its end
            self._hand_on()
        self.reporter.say(f"resumed {self.folder} at update {self._updates():,}")


def check_lessons(recipe: Recipe, task: Task, share: Share) -> None:
    """Say what a later stage can not do before the first begins."""
    for stage in recipe.stages:
        stage.lesson.feed(task, SeedStream(0, "train"), stage.batch, share)


def check_same_run(
    content: dict[str, Any], about: dict[str, Any], recipe: dict[str, Any], folder: Path
) -> None:
    """A run goes on with the settings it began with; what stops it may change, and so may stages
    that it has not come to.
    """
    reached = content["progress"]["stage"] + 1
    saved, wanted = (
        {"about": a, "recipe": {**r, "stages": r["stages"][:reached]}}
        for a, r in ((content["about"], content["recipe"]), (about, recipe))
    )
    for part in saved:
        began, goes_on = dict(flattened(saved[part])), dict(flattened(wanted[part]))
        for key in sorted(began.keys() | goes_on.keys()):
            old, new = began.get(key), goes_on.get(key)
            if old != new:
                raise UsageError(
                    f"{folder} holds a run with {key} = {old}, now it is {new}: give the old "
                    "value, or another --folder"
                )
