"""Proximal policy optimization (Schulman et al., 2017): walk, then learn from that a few times.

One file, from top to bottom: settings, the learner, its rollout, its loss. The memory is frozen
and its windows were kept along the way, so learning runs no recurrence but the policy's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.rl.agent import Agent, Glimpse, stretch
from mgmem.rl.policy import State, select
from mgmem.rl.vector import MazeVectorEnv


@dataclass(frozen=True)
class PPO:
    """Settings of proximal policy optimization."""

    updates: int = 600
    """Length of the run, and of the fall of the learning rate, in rollouts."""
    mazes: int = 64
    """Walks side by side."""
    rollout: int = 64
    """Steps of each of them between updates."""
    epochs: int = 3
    """How often each rollout is learned from."""
    minibatches: int = 8
    """Parts of a rollout, each some of the walks, that the optimiser sees one after another."""
    lr: float = 7e-4
    """Learning rate (Adam) at the start."""
    final_lr: float = 0.1
    """Share of it at the end; it falls linearly."""
    discount: float = 0.99
    """What a reward is worth one step later."""
    trace: float = 0.95
    """Lambda of generalized advantage estimation: 0 trusts the values, 1 only the rewards."""
    clip: float = 0.2
    """How far the chance of an action may move within an update, as a ratio."""
    entropy: float = 0.01
    """Weight of the bonus for undecided policies."""
    value: float = 0.5
    """Weight of the values' squared error."""
    reward_scale: float = 0.1
    """Rewards are learned in units of which one is so much: values then are of order 1."""
    max_norm: float = 0.5
    """Gradients are scaled down to this norm."""

    def __post_init__(self) -> None:
        counts = ("updates", "mazes", "rollout", "epochs", "minibatches")
        for name in counts:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.mazes % self.minibatches:
            raise UsageError(
                f"{self.mazes} mazes in {self.minibatches} minibatches: give a number of mazes "
                "that they divide"
            )


class Rollout(NamedTuple):
    """T steps of B walks: glimpses (T, B, ...), all that follows (T, B).

    state: what the policy remembered before; last_value: (B,), of the glimpse after. counts:
    False where a walk was over and the step only began the next one; its action did nothing and
    teaches nothing.
    """

    state: State
    last_value: Tensor
    glimpses: Glimpse
    actions: Tensor
    chances: Tensor
    values: Tensor
    rewards: Tensor
    counts: Tensor
    ends: Tensor


class PPOLearner:
    """An agent in its mazes, getting better."""

    def __init__(self, agent: Agent, env: MazeVectorEnv, settings: PPO, seed: int = 0) -> None:
        self.agent, self.env, self.settings = agent, env, settings
        self.policy = agent.policy
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=settings.lr, eps=1e-5)
        self.random = torch.Generator().manual_seed(seed)
        self.done, self.steps = 0, 0
        # Walks end at different times, so that every update sees all parts of a walk.
        elapsed = np.arange(env.num_envs) * env.steps // env.num_envs
        observation, _ = env.reset(seed=first_maze(seed), options={"elapsed": elapsed})
        self.glimpse = agent.look(observation, env.fresh)

    def update(self) -> dict[str, float]:
        """One rollout and what is learned from it; returns what there is to log."""
        settings, share = self.settings, self.done / self.settings.updates
        rate = settings.lr * (1 - (1 - settings.final_lr) * min(1.0, share))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rollout = self._walk()
        advantages = self._advantages(rollout)
        returns = advantages + rollout.values
        sums: dict[str, float] = {}
        for _ in range(settings.epochs):
            order = torch.randperm(settings.mazes, generator=self.random)
            for which in order.chunk(settings.minibatches):
                for name, value in self._learn(rollout, advantages, returns, which).items():
                    sums[name] = sums.get(name, 0.0) + value
        self.done += 1
        self.steps += settings.rollout * settings.mazes
        counted = rollout.counts.float().sum()
        reward = float((rollout.rewards * rollout.counts).sum() / counted) / settings.reward_scale
        parts = settings.epochs * settings.minibatches
        means = {name: total / parts for name, total in sums.items()}
        return {"reward_per_step": reward, "rate": rate, **means}

    def _walk(self) -> Rollout:
        """Let the agent walk on."""
        state = self.agent.state
        if state is None:
            state = self.policy.initial_state(self.settings.mazes)
        steps: list[tuple[Tensor, ...]] = []
        glimpses, over = [], torch.from_numpy(self.env.over)
        for _ in range(self.settings.rollout):
            glimpses.append(self.glimpse)
            actions, chances, values = self.agent.decide(self.glimpse)
            observation, reward, _, ends, _ = self.env.step(actions.numpy())
            rewards = torch.from_numpy(reward).float() * self.settings.reward_scale
            ended = torch.from_numpy(ends)
            steps.append((actions, chances, values, rewards, ~over, ended))
            over = ended
            self.glimpse = self.agent.look(observation, self.env.fresh)
        _, last_value, _ = self.agent.judge(self.glimpse)
        parts = [torch.stack(part) for part in zip(*steps, strict=True)]
        return Rollout(state, last_value, stretch(glimpses), *parts)

    def _advantages(self, rollout: Rollout) -> Tensor:
        """Generalized advantage estimates (T, B).

        A walk is cut off, it does not end: what would have come then counts by its value, which
        the glimpse after the last step gives.
        """
        discount, trace = self.settings.discount, self.settings.trace
        advantages = torch.zeros_like(rollout.rewards)
        following, value = torch.zeros_like(rollout.last_value), rollout.last_value
        for t in reversed(range(len(rollout.rewards))):
            error = rollout.rewards[t] + discount * value - rollout.values[t]
            following = error + discount * trace * following * ~rollout.ends[t]
            advantages[t], value = following, rollout.values[t]
        return advantages

    def _learn(
        self, rollout: Rollout, advantages: Tensor, returns: Tensor, which: Tensor
    ) -> dict[str, float]:
        """One step of the optimiser on some of the walks."""
        settings = self.settings
        seen, inputs, fresh = (part[:, which] for part in rollout.glimpses)
        logits, values, _ = self.policy(seen, inputs, select(rollout.state, which), fresh)
        counts = rollout.counts[:, which]
        all_chances = logits.log_softmax(2)[counts]
        actions = rollout.actions[:, which][counts][:, None]
        change = all_chances.gather(1, actions)[:, 0] - rollout.chances[:, which][counts]
        worth = advantages[:, which][counts]
        worth = (worth - worth.mean()) / (worth.std() + 1e-8)
        ratio = change.exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        policy_loss = -torch.minimum(ratio * worth, clipped * worth).mean()
        value_loss = (values[counts] - returns[:, which][counts]).square().mean() / 2
        entropy = -(all_chances.exp() * all_chances).sum(1).mean()
        loss = policy_loss + settings.value * value_loss - settings.entropy * entropy
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), settings.max_norm)
        self.optimizer.step()
        return {
            "policy_loss": float(policy_loss.detach()),
            "value_loss": float(value_loss.detach()),
            "entropy": float(entropy.detach()),
            "kl": float((ratio - 1 - change).mean().detach()),
            "clipped": float(((ratio - 1).abs() > settings.clip).float().mean()),
        }

    def checkpoint(self) -> dict[str, Any]:
        """All that decides how learning goes on, to the last bit."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": self.random.get_state(),
            "done": self.done,
            "steps": self.steps,
            "agent": self.agent.tensors(),
            "env": _as_tensors(self.env.snapshot()),
            "glimpse": tuple(self.glimpse),
        }

    def restore(self, content: dict[str, Any]) -> None:
        """The inverse of ``checkpoint``."""
        self.policy.load_state_dict(content["policy"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.random.set_state(content["random"])
        self.done, self.steps = content["done"], content["steps"]
        self.agent.restore(content["agent"])
        self.env.restore(_as_arrays(content["env"]))
        self.glimpse = Glimpse(*content["glimpse"])

    def close(self) -> None:
        """Nothing is left running."""


def first_maze(seed: int) -> int:
    """Where the mazes of a training seed begin: those of different seeds do not overlap."""
    return seed << 20


def _as_tensors(content: Any) -> Any:
    """NumPy arrays as tensors, which a checkpoint may hold."""
    if isinstance(content, dict):
        return {name: _as_tensors(part) for name, part in content.items()}
    return torch.from_numpy(content) if isinstance(content, np.ndarray) else content


def _as_arrays(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _as_arrays(part) for name, part in content.items()}
    return content.numpy() if isinstance(content, Tensor) else content
