"""Asynchronous advantage actor-critic (Mnih et al., 2016), as the paper trained its policy.

Workers, one process each, walk on their own and change the same weights without waiting for one
another: take the weights, walk a few steps, work out the gradient, apply it to whatever the
weights have become. RMSProp's averages are shared as well. Nobody keeps order, so two runs differ;
a run that is resumed goes on from its weights and averages, on new walks.
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.rl.agent import Agent, Glimpse, stretch
from mgmem.rl.policy import Policy
from mgmem.rl.ppo import first_maze
from mgmem.rl.vector import MazeVectorEnv

Make = Callable[[int, int], tuple[Agent, MazeVectorEnv]]
"""An agent and so many (second) mazes from a seed (first); called in each worker."""


@dataclass(frozen=True)
class A3C:
    """Settings of asynchronous advantage actor-critic."""

    updates: int = 600
    """Length of the run, in reports of `segments` each, and of the fall of the learning rate."""
    workers: int = 2
    """Processes, one thread each."""
    mazes: int = 16
    """Walks side by side in each worker."""
    rollout: int = 20
    """Steps of each of them between changes of the weights."""
    segments: int = 13
    """Changes of the weights, by whichever worker, from one report to the next."""
    lr: float = 1e-3
    """Learning rate (RMSProp) at the start; it falls linearly."""
    final_lr: float = 0.1
    """Share of it at the end."""
    decay: float = 0.99
    """Of RMSProp's averages."""
    epsilon: float = 1e-7
    """Added to them, inside the root."""
    discount: float = 0.99
    """What a reward is worth one step later."""
    entropy: float = 0.01
    """Weight of the bonus for undecided policies."""
    value: float = 0.5
    """Weight of the values' squared error."""
    reward_scale: float = 0.1
    """Rewards are learned in units of which one is so much: values then are of order 1."""
    max_norm: float = 0.5
    """Gradients are scaled down to this norm."""

    def __post_init__(self) -> None:
        for name in ("updates", "workers", "mazes", "rollout", "segments"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give at least 1")


@dataclass
class Shared:
    """What all workers change: weights, averages, and how often that was done."""

    policy: Policy
    squares: list[Tensor]
    count: Tensor

    @staticmethod
    def of(policy: Policy) -> Shared:
        """Averages start at 0."""
        policy.share_memory()
        squares = [torch.zeros_like(p).share_memory_() for p in policy.parameters()]
        return Shared(policy, squares, torch.zeros(1, dtype=torch.int64).share_memory_())

    def rate(self, settings: A3C) -> float:
        """The learning rate by now."""
        share = min(1.0, int(self.count) / (settings.updates * settings.segments))
        return settings.lr * (1 - (1 - settings.final_lr) * share)

    def apply(self, gradients: list[Tensor], settings: A3C) -> None:
        """One step of RMSProp, whatever the others do meanwhile."""
        rate = self.rate(settings)
        with torch.no_grad():
            parts = zip(self.policy.parameters(), self.squares, gradients, strict=True)
            for weight, square, gradient in parts:
                square.mul_(settings.decay).addcmul_(gradient, gradient, value=1 - settings.decay)
                weight.addcdiv_(gradient, (square + settings.epsilon).sqrt(), value=-rate)
        self.count += 1


class A3CLearner:
    """Workers on shared weights; starts them with the first update."""

    def __init__(self, make: Make, policy: Policy, settings: A3C, seed: int = 0) -> None:
        """make: can be sent to another process, such as a function of a module."""
        self.settings, self.policy = settings, policy
        self._make, self._seed = make, seed
        self._shared = Shared.of(policy)
        self.done, self.steps = 0, 0
        self._workers: list[Any] = []

    def update(self) -> dict[str, float]:
        """Wait for the next reports; returns their mean."""
        if not self._workers:
            self._start()
        reports = [self._report() for _ in range(self.settings.segments)]
        self.done += 1
        self.steps += len(reports) * self.settings.rollout * self.settings.mazes
        means = {name: float(np.mean([r[name] for r in reports])) for name in reports[0]}
        return {"rate": self._shared.rate(self.settings), **means}

    def _start(self) -> None:
        # A forked child would share OpenMP's threads with its parent and wait for them forever.
        context = processes.get_context("spawn")
        self._reports: Any = context.Queue(maxsize=4 * self.settings.workers)
        self._stop = context.Event()
        for number in range(self.settings.workers):
            # New walks after a resumption, and others in every worker.
            seed = first_maze(self._seed) + self.settings.mazes * (
                number + self.settings.workers * (1 + self.done)
            )
            arguments = (self._make, seed, self._shared, self.settings, self._reports, self._stop)
            worker = context.Process(target=_work, args=arguments, daemon=True)
            worker.start()
            self._workers.append(worker)

    def _report(self) -> dict[str, float]:
        while True:
            try:
                return self._reports.get(timeout=1.0)
            except queue.Empty:
                for worker in self._workers:
                    if worker.exitcode is not None:
                        self.close()
                        raise UsageError(
                            f"a worker ended with exit code {worker.exitcode}; its error is above"
                        ) from None

    def checkpoint(self) -> dict[str, Any]:
        """Weights and averages as they are at this moment."""
        shared = self._shared
        return {
            "policy": {name: t.clone() for name, t in self.policy.state_dict().items()},
            "squares": [square.clone() for square in shared.squares],
            "count": int(shared.count),
            "done": self.done,
            "steps": self.steps,
        }

    def restore(self, content: dict[str, Any]) -> None:
        """Go on from there, on new walks."""
        self.policy.load_state_dict(content["policy"])
        for square, kept in zip(self._shared.squares, content["squares"], strict=True):
            square.copy_(kept)
        self._shared.count.fill_(content["count"])
        self.done, self.steps = content["done"], content["steps"]

    def close(self) -> None:
        """End the workers."""
        if not self._workers:
            return
        self._stop.set()
        for worker in self._workers:
            while worker.is_alive():
                _drain(self._reports)
                worker.join(0.05)
        self._workers = []
        self._reports.close()


def _drain(reports: Any) -> None:
    """Make room, so that a worker that waits to report can see that it should stop."""
    try:
        while True:
            reports.get_nowait()
    except queue.Empty:
        pass


def _work(make: Make, seed: int, shared: Shared, settings: A3C, reports: Any, stop: Any) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which says stop
    torch.set_num_threads(1)
    agent, env = make(seed, settings.mazes)
    elapsed = np.arange(env.num_envs) * env.steps // env.num_envs
    observation, _ = env.reset(seed=seed, options={"elapsed": elapsed})
    glimpse = agent.look(observation, env.fresh)
    parent = processes.parent_process()
    while not stop.is_set() and (parent is None or parent.is_alive()):
        agent.policy.load_state_dict(shared.policy.state_dict())
        glimpse, report = _segment(agent, env, glimpse, settings)
        gradients = [p.grad for p in agent.policy.parameters() if p.grad is not None]
        shared.apply(gradients, settings)
        reports.put(report)


def _segment(
    agent: Agent, env: MazeVectorEnv, glimpse: Glimpse, settings: A3C
) -> tuple[Glimpse, dict[str, float]]:
    """Walk on a little and work out the gradient; returns the next glimpse and a report."""
    state = agent.state
    if state is None:
        state = agent.policy.initial_state(settings.mazes)
    glimpses, taken, over = [], [], torch.from_numpy(env.over)
    for _ in range(settings.rollout):
        glimpses.append(glimpse)
        actions, _, _ = agent.decide(glimpse)
        observation, reward, _, truncated, _ = env.step(actions.numpy())
        ended = torch.from_numpy(truncated)
        taken.append((actions, torch.from_numpy(reward).float(), ~over, ended))
        over = ended
        glimpse = agent.look(observation, env.fresh)
    actions, rewards, counts, ends = (torch.stack(part) for part in zip(*taken, strict=True))
    seen, inputs, fresh = stretch(glimpses)
    logits, values, _ = agent.policy(seen, inputs, state, fresh)
    returns = _returns(
        rewards * settings.reward_scale, ends, values.detach(), agent.judge(glimpse)[1], settings
    )
    chances = logits.log_softmax(2)[counts]
    worth = (returns - values)[counts]
    taken_chances = chances.gather(1, actions[counts][:, None])[:, 0]
    policy_loss = -(taken_chances * worth.detach()).mean()
    value_loss = worth.square().mean() / 2
    entropy = -(chances.exp() * chances).sum(1).mean()
    agent.policy.zero_grad(set_to_none=True)
    (policy_loss + settings.value * value_loss - settings.entropy * entropy).backward()
    nn.utils.clip_grad_norm_(agent.policy.parameters(), settings.max_norm)
    return glimpse, {
        "reward_per_step": float(rewards[counts].mean()),
        "policy_loss": float(policy_loss.detach()),
        "value_loss": float(value_loss.detach()),
        "entropy": float(entropy.detach()),
    }


def _returns(
    rewards: Tensor, ends: Tensor, values: Tensor, last_value: Tensor, settings: A3C
) -> Tensor:
    """Discounted rewards up to the segment's end and the value there: (T, B).

    A walk that was cut off within the segment counts on with the value of its last glimpse.
    """
    returns, following = torch.empty_like(rewards), last_value
    for t in reversed(range(len(rewards))):
        if t + 1 < len(rewards):
            following = torch.where(ends[t], values[t + 1], following)
        following = rewards[t] + settings.discount * following
        returns[t] = following
    return returns
