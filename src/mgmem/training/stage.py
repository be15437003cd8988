"""One stage under way: batches in, steps of the optimiser, weights out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import Model, ask
from mgmem.tasks.base import Batch, Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.average import WeightAverage
from mgmem.training.device import Amp, autocast
from mgmem.training.distributed import all_states, summed
from mgmem.training.feed import Share
from mgmem.training.recipe import Stage


class TrainingFailed(UsageError):
    """Training can not go on; the last checkpoint is whole."""


def _learns(stage: Stage, name: str) -> bool:
    return not stage.learns or name.startswith(stage.learns)


def check_learns(stage: Stage, model: nn.Module) -> None:
    """An error if a stage is to train what the model does not have."""
    names = [name for name, _ in model.named_parameters()]
    for part in stage.learns:
        if not any(name.startswith(part) for name in names):
            parts = ", ".join(sorted({name.partition(".")[0] + "." for name in names}))
            raise UsageError(
                f"stage {stage.name} learns {part!r}, and no tensor's name begins so; this model "
                f"has {parts}"
            )


class StageRun:
    """A stage's feed, optimiser, averaged weights and carried memory."""

    def __init__(
        self,
        stage: Stage,
        model: Model,
        task: Task,
        stream: SeedStream,
        share: Share,
        amp: Amp = "none",
    ) -> None:
        self.stage, self.model, self.task, self.share = stage, model, task, share
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(_learns(stage, name))
        self.feed = stage.lesson.feed(task, stream, stage.batch, share)
        self.optimizer = stage.optimizer.build(model)
        self.average = WeightAverage(model, stage.average) if stage.average else None
        self.update = 0
        self.loss = math.nan
        """Loss, smoothed over the last updates."""
        self.best: dict[str, Tensor] | None = None
        """The stage's best weights, if the next one begins with them."""
        self._amp: Amp = amp
        self._device = next(model.parameters()).device
        self._state: Any = None
        self._call: nn.Module = model
        if share.world > 1:
            self._call = nn.parallel.DistributedDataParallel(model)

    @property
    def rate(self) -> float:
        """Learning rate of the next update."""
        return self.stage.rate.at(self.update, self.stage.updates)

    @property
    def done(self) -> bool:
        """Whether the stage has come to its end."""
        grown = self.stage.until_whole and self.feed.horizon.growing is None
        return grown or self.update >= self.stage.updates

    @property
    def due(self) -> bool:
        """Whether it is time to validate: now and then, and at the end."""
        return self.done or self.update % self.stage.validation.every == 0

    def weights(self) -> dict[str, Tensor]:
        """The weights to evaluate and hand on: averaged, if the stage averages."""
        return self.average.weights if self.average else self.model.state_dict()

    def step(self) -> None:
        """One batch, one step of the optimiser."""
        batch = self.feed.next().to(self._device)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        with autocast(self._device, self._amp):
            answers, state = ask(self._call, batch, self._state)
        if self.feed.carries_state:
            self._state = state.detach()
        loss = self._loss(answers, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._clip()
        self.optimizer.step()
        self.update += 1
        if self.average:
            self.average.update(self.model, self.update)
        self._tell_feed(answers, batch)

    def _clip(self) -> None:
        if not self.stage.clip:
            return
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.stage.clip)
        if not bool(torch.isfinite(norm)):
            raise self._failed("gradient", float(norm))

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
            raise self._failed("loss", value)
        slow = 0.98 if math.isfinite(self.loss) else 0.0
        self.loss = slow * self.loss + (1 - slow) * value if slow else value
        return loss

    def _failed(self, what: str, value: float) -> TrainingFailed:
        return TrainingFailed(
            f"the {what} at update {self.update} of stage {self.stage.name} is {value}: try a "
            "lower rate.peak or clip; the last checkpoint is whole"
        )

    def _tell_feed(self, answers: tuple[Tensor, ...], batch: Batch) -> None:
        """Let the feed hear how well the batch was answered: the same in every process."""
        self.feed.hear(summed(self.feed.marks(answers, batch).to(self._device)))

    def state_dict(self) -> dict[str, Any]:
        """All that going on needs, apart from the model's weights."""
        tensors = {} if self._state is None else self._state.tensors()
        return {
            "update": self.update,
            "loss": self.loss,
            "average": self.average.weights if self.average else None,
            "best": self.best,
            "optimizer": self.optimizer.state_dict(),
            "feed": self.feed.state_dict(),
            "states": all_states({name: tensor.cpu() for name, tensor in tensors.items()}),
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Go on from there, on whatever device this is."""
        states = content["states"]
        if len(states) != self.share.world:
            raise UsageError(f"this run has {len(states)} processes; go on with as many")
        self.update, self.loss, self.best = content["update"], content["loss"], content["best"]
        if self.average:
            for name, tensor in self.average.weights.items():
                tensor.copy_(content["average"][name])
        own = self.optimizer.state_dict()  # settings are the recipe's, whatever a file says
        self.optimizer.load_state_dict({**own, "state": content["optimizer"]["state"]})
        self.feed.load_state_dict(content["feed"])
        mine = states[self.share.rank]
        if mine:
            moved = {name: tensor.to(self._device) for name, tensor in mine.items()}
            self._state = self.model.state_from_tensors(moved)
