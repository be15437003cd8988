"""The agent: a sight, a policy, and one step at a time."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.rl.policy import Policy, State
from mgmem.rl.sight import Sight
from mgmem.rl.walks import Observation
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import Ints


class Glimpse(NamedTuple):
    """A moment of B walks, as a policy gets it.

    seen: (B, channels, window, window); inputs: (B, 4, m, m); fresh: (B,) bool, where a walk has
    just begun. With time in front, (T, B, ...), it is a stretch of them.
    """

    seen: Tensor
    inputs: Tensor
    fresh: Tensor


class Agent:
    """Looks, decides, and remembers from step to step.

    task: how observations are told to memory and policy (its ``observation``).
    seed: of the actions drawn.
    """

    def __init__(self, task: Mapping, sight: Sight, policy: Policy, seed: int = 0) -> None:
        self.task, self.sight, self.policy = task, sight, policy
        self.random = torch.Generator().manual_seed(seed)
        #: What the policy itself remembers; the sight has its own.
        self.state: State = None

    @torch.no_grad()
    def look(self, observation: Observation, fresh: npt.NDArray[np.bool_]) -> Glimpse:
        """Take in an observation of B walks, once: a memory writes it down."""
        told = self.task.observation(observation["view"].astype(np.bool_), observation["place"])
        inputs = torch.from_numpy(told)
        return Glimpse(
            self.sight.look(observation, inputs, fresh), inputs, torch.from_numpy(fresh.copy())
        )

    @torch.no_grad()
    def judge(self, glimpse: Glimpse) -> tuple[Tensor, Tensor, State]:
        """Logits (B, 4), values (B,) and what the policy would remember."""
        if self.state is None:
            self.state = self.policy.initial_state(len(glimpse.fresh))
        seen, inputs, fresh = (part[None] for part in glimpse)
        logits, values, state = self.policy(seen, inputs, self.state, fresh)
        return logits[0], values[0], state

    def decide(self, glimpse: Glimpse) -> tuple[Tensor, Tensor, Tensor]:
        """An action each, (B,), drawn from the policy's chances; its log-chances and values."""
        logits, values, self.state = self.judge(glimpse)
        chances = logits.log_softmax(1)
        actions = torch.multinomial(chances.exp(), 1, generator=self.random)
        return actions[:, 0], chances.gather(1, actions)[:, 0], values

    def act(self, observation: Observation, fresh: npt.NDArray[np.bool_]) -> Ints:
        """As a walker."""
        if fresh.all():
            self.state = None
        return cast("Ints", self.decide(self.look(observation, fresh))[0].numpy())

    def tensors(self) -> dict[str, Tensor]:
        """All that goes on from step to step, for a checkpoint."""
        own = {} if self.state is None else self.state.tensors()
        return {
            "random": self.random.get_state(),
            **{f"policy.{name}": tensor for name, tensor in own.items()},
            **{f"sight.{name}": tensor for name, tensor in self.sight.tensors().items()},
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        parts: dict[str, dict[str, Tensor]] = {"policy": {}, "sight": {}}
        for name, tensor in tensors.items():
            owner, _, rest = name.partition(".")
            if rest:
                parts[owner][rest] = tensor
        self.random.set_state(tensors["random"])
        self.state = self.policy.state_from_tensors(parts["policy"])
        self.sight.restore(parts["sight"])


def stretch(glimpses: list[Glimpse]) -> Glimpse:
    """Moments one after another: (T, B, ...)."""
    return Glimpse(*(torch.stack(part) for part in zip(*glimpses, strict=True)))
