"""The training loop: one for every task and model; stops and resumes without a trace."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training import checkpoint
from mgmem.training.distributed import agreed, all_states, summed
from mgmem.training.evaluation import TEST_SEED, deciding, evaluate
from mgmem.training.feed import Share, make_feed
from mgmem.training.optim import WeightAverage, build_optimizer
from mgmem.training.progress import Report, Reporter
from mgmem.training.recipe import Recipe
from mgmem.training.weights import save_weights


class TrainingFailed(UsageError):
    """Training can not go on; the last checkpoint is whole."""


@dataclass(frozen=True)
class Limits:
    """When to stop before the recipe's end, and how often to save."""

    max_updates: int | None = None
    max_minutes: float | None = None
    until: float | None = None
    """Value of the deciding validation metric that is good enough."""
    checkpoint_seconds: float = 60.0


@dataclass
class Budget:
    """What training took, how it went, and the commands that did it."""

    updates: int = 0
    steps: int = 0
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


@dataclass
class _Progress:
    """What a run has been through; part of the checkpoint."""

    update: int = 0
    seconds: float = 0.0
    best: float | None = None
    curve: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=lambda: asdict(Budget()))
    """Budget of the weights that the run started from, whose curve goes on in `curve`."""


class Trainer:
    """Trains a model on a task in a run folder; resumes if the folder holds a checkpoint."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        recipe: Recipe,
        folder: Path,
        about: dict[str, Any],
        *,
        seed: int = 0,
        share: Share | None = None,
        before: Budget | None = None,
        reporter: Reporter,
    ) -> None:
        """``before``: what the model's weights were already trained with, if they were."""
        self.model, self.task, self.recipe, self.folder = model, task, recipe, folder
        self.about, self.share, self.reporter = about, share or Share(), reporter
        self.feed = make_feed(task, seed, recipe, self.share)
        self.optimizer = build_optimizer(model, recipe)
        self.average = WeightAverage(model, recipe.average) if recipe.average else None
        before = before or Budget()
        self.progress = _Progress(curve=before.curve, before=asdict(replace(before, curve=[])))
        self._state: Any = None
        self._call: nn.Module = model
        if self.share.world > 1:
            self._call = nn.parallel.DistributedDataParallel(model)
        self._recent_loss = math.nan

    def run(self, limits: Limits) -> _Progress:
        """Train until the recipe's end or a limit; leaves a checkpoint of the last update."""
        self._resume()
        last = self.recipe.updates
        if limits.max_updates is not None:
            last = min(last, limits.max_updates)
        start_update, started = self.progress.update, time.monotonic()
        before = self.progress.seconds
        saved, good_enough = started, False
        with _stop_signals() as stopped:
            while self.progress.update < last and not good_enough:
                self._update()
                now = time.monotonic()
                self.progress.seconds = before + now - started
                self._show((self.progress.update - start_update) / (now - started), last)
                if self.progress.update % self.recipe.evaluate_every == 0:
                    good_enough = self._evaluate(limits.until)
                out_of_time = (
                    limits.max_minutes is not None and now - started > 60 * limits.max_minutes
                )
                if agreed(stopped() or out_of_time):
                    break
                if agreed(now - saved > limits.checkpoint_seconds):
                    self._save()
                    saved = now
        self.progress.seconds = before + time.monotonic() - started
        self._save()
        return self.progress

    def weights(self) -> dict[str, Tensor]:
        """The weights to evaluate and publish: averaged, if the recipe averages."""
        return self.average.weights if self.average else self.model.state_dict()

    def _update(self) -> None:
        """One batch, one step of the optimiser."""
        batch = self.feed.next()
        rate = self.recipe.rate(self.progress.update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        answers, state = self._call(
            batch.inputs,
            self._state,
            queries=batch.queries,
            times=batch.times,
            reset=batch.reset,
        )
        if self.feed.carries_state:
            self._state = state.detach()
        loss = self._loss(answers, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.recipe.clip:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
            if not bool(torch.isfinite(norm)):
                raise TrainingFailed(
                    f"the gradient at update {self.progress.update} is {float(norm)}: try a lower "
                    "--lr or --clip; the last checkpoint is whole"
                )
        self.optimizer.step()
        self.progress.update += 1
        if self.average:
            self.average.update(self.model, self.progress.update)
        self._tell_feed(answers, batch)

    def _tell_feed(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """Let the feed hear how well the batch was answered: the same number in every process."""
        counted, value = float(batch.counted()), 0.0
        if counted:
            score = self.task.new_score()
            score.add(answers, batch)
            value = deciding(score).value
            value = value if score.higher_is_better else 1 - value
        weighed, total = summed(torch.tensor([value * counted, counted])).tolist()
        if total:
            self.feed.score(weighed / total)

    def _loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """The loss whose gradients, averaged over processes, are those of the whole batch."""
        loss = self.task.loss(answers, batch)
        if self.share.world > 1:
            counted = batch.counted()
            total = summed(counted)
            # Each process has the mean over its own counted queries; weigh it by their number.
            loss = loss * (counted * self.share.world / total.clamp(min=1))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingFailed(
                f"the loss at update {self.progress.update} is {value}: try a lower --lr; "
                "the last checkpoint is whole"
            )
        slow = 0.98 if math.isfinite(self._recent_loss) else 0.0
        self._recent_loss = slow * self._recent_loss + (1 - slow) * value if slow else value
        return loss

    def _evaluate(self, until: float | None) -> bool:
        """Score on validation episodes; keep the best weights; True if good enough."""
        live = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(self.weights())
        stream = SeedStream(TEST_SEED, "valid")
        score = evaluate(self.model, self.task, stream, self.recipe.evaluate_episodes)
        value = deciding(score).value
        better = (
            value > (self.progress.best or -math.inf)
            if score.higher_is_better
            else (self.progress.best is None or value < self.progress.best)
        )
        spent = spent_budget(asdict(self.progress), self.feed.steps)
        point = {
            "update": spent.updates,
            "steps": spent.steps,
            "seconds": round(spent.seconds, 1),
            "loss": self._recent_loss,
            **{name: estimate.value for name, estimate in score.result().items()},
        }
        self.progress.curve.append(point)
        if better:
            self.progress.best = value
            if self.share.rank == 0:
                save_weights(self.folder / "best.safetensors", self.weights(), self.about)
        self.model.load_state_dict(live)
        if self.share.rank == 0:
            self.reporter.record(self.progress.update, self.feed.steps, point)
            self.reporter.say(
                f"update {self.progress.update:,}: {score.key} {deciding(score)} on "
                f"{self.recipe.evaluate_episodes} validation episodes"
                f"{' (best so far)' if better else ''}"
            )
        if until is None:
            return False
        return value >= until if score.higher_is_better else value <= until

    def _show(self, speed: float, last: int) -> None:
        if self.share.rank:
            return
        score = self.task.new_score()
        metric = ""
        if self.progress.curve:
            metric = f"{score.key} {self.progress.curve[-1][score.key]:.4f}"
        horizon = self.feed.horizon.steps if self.recipe.horizon else None
        report = Report(
            self.progress.update, last, self.feed.steps, self._recent_loss, metric, speed, horizon
        )
        self.reporter.show(report)

    def _save(self) -> None:
        """Write a checkpoint; a full disk ends the run with the one before whole."""
        tensors = {} if self._state is None else self._state.tensors()
        states = all_states({name: tensor.cpu() for name, tensor in tensors.items()})
        if self.share.rank:
            return
        content = {
            "about": self.about,
            "recipe": asdict(self.recipe),
            "progress": asdict(self.progress),
            "recent_loss": self._recent_loss,
            "model": self.model.state_dict(),
            "average": self.average.weights if self.average else None,
            "optimizer": self.optimizer.state_dict(),
            "feed": self.feed.state_dict(),
            "states": states,
            "random": torch.get_rng_state(),
        }
        try:
            checkpoint.save(self.folder, self.progress.update, content)
        except OSError as error:
            raise TrainingFailed(
                f"the checkpoint of update {self.progress.update} could not be written to "
                f"{self.folder} ({error.strerror}); the one before is whole"
            ) from None

    def _resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        content, complaints = checkpoint.newest(self.folder)
        for complaint in complaints:
            self.reporter.say(f"{complaint}: going on from the one before")
        if content is None:
            return
        self._check_same_run(content)
        self.progress = _Progress(**content["progress"])
        self._recent_loss = content["recent_loss"]
        self.model.load_state_dict(content["model"])
        if self.average and content["average"]:
            self.average.weights = content["average"]
        self.optimizer.load_state_dict(content["optimizer"])
        self.feed.load_state_dict(content["feed"])
        states = content["states"]
        if len(states) != self.share.world:
            raise UsageError(
                f"{self.folder} was trained by {len(states)} processes; go on with as many"
            )
        if states[self.share.rank]:
            self._state = self.model.state_from_tensors(states[self.share.rank])  # type: ignore[operator]
        torch.set_rng_state(content["random"])
        self.reporter.say(f"resumed {self.folder} at update {self.progress.update:,}")

    def _check_same_run(self, content: dict[str, Any]) -> None:
        """A run goes on with the settings it began with; what stops it may change."""
        for part, now in (("about", self.about), ("recipe", asdict(self.recipe))):
            for key, value in now.items():
                # A setting that the run did not know yet has had its default's effect all along.
                old = content[part].get(key, value)
                if old != value:
                    raise UsageError(
                        f"{self.folder} holds a run with {key} = {old}, now it is {value}: "
                        "give the old value, or another --folder"
                    )


def spent_budget(progress: dict[str, Any], steps: int) -> Budget:
    """All that a run's weights took, what they started from included; from its checkpoint.

    The commands are those of the runs before.
    """
    before = Budget(**progress.get("before", {}))
    return Budget(
        before.updates + progress["update"],
        before.steps + steps,
        before.seconds + progress["seconds"],
        progress["curve"],
        before.commands,
    )


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question asked between updates."""
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, remember) for number in watched]
    try:
        yield lambda: asked
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)
