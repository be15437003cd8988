"""How to train: everything that decides the numbers, apart from task and model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mgmem.errors import UsageError
from mgmem.nn.conv import Init


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; the same recipe and seed give the same weights."""

    init: Init = "he"
    """How MG-conv layers start: scaled for ReLUs, or narrower, as in the reference."""
    updates: int = 10_000
    """Length of the run, and of the learning rate schedule, in optimiser updates."""
    batch: int = 32
    """Sequences trained side by side, over all processes."""
    chunk: int = 20
    """Steps of truncated back-propagation; the state is carried on to the next chunk."""
    query_share: float = 0.25
    """Share of a chunk's steps after which a query is asked (tasks that read during)."""
    query_limit: int = 0
    """At most so many queries of each sequence in a chunk; 0: no limit."""
    query_from: float = 0.0
    """Queries are asked after this share of a chunk: late ones are about more that was seen."""
    rare_queries: float = 0.0
    """Share of training queries drawn among different patches instead of positions (mapping)."""
    questions: int = 1
    """Questions about each training sequence, or as many as there are (recall tasks)."""
    groups: int = 4
    """The batch is cut into so many groups at different places of their episodes."""
    optimizer: Literal["adamw", "muon", "rmsprop"] = "adamw"
    """AdamW, Muon, or the paper's RMSProp (epsilon inside the root, accumulator starting at 1)."""
    lr: float = 3e-3
    """Peak learning rate."""
    gate_rate: float = 1.0
    """Learning rate of the kernels of LSTM gates, as a multiple of all others' (Muon)."""
    final_lr: float = 0.1
    """Learning rate at the end, as a share of the peak (linear and cosine schedules)."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the learning rate falls after the warm-up."""
    hold: int = 0
    """Update until which the learning rate stays at its peak, before it falls."""
    fall: int = 0
    """Update by which it has fallen, and then stays; 0: the last."""
    warmup: int = 100
    """Updates over which the learning rate rises from zero."""
    weight_decay: float = 0.0
    """Decoupled weight decay: AdamW's of all weights, Muon's of all kernels but the gates'."""
    beta2: float = 0.99
    """AdamW's decay of the squared gradients' average."""
    clip: float = 1.0
    """Largest norm of the whole gradient; 0: no clipping."""
    average: float = 0.0
    """Decay of the exponential moving average of weights that is evaluated; 0: none."""
    horizon: int = 0
    """Steps of an episode at the beginning; it then grows as learning allows. 0: all at once."""
    anywhere: bool = False
    """Episodes left early are stretches from anywhere on the path, not its beginning (mapping)."""
    horizon_growth: float = 1.25
    """Factor by which the horizon grows each time the goal is met."""
    horizon_goal: float = 0.8
    """Score on training queries (F, or 1 - error) at which the horizon grows."""
    evaluate_every: int = 500
    """Updates between evaluations on validation episodes."""
    evaluate_episodes: int = 128
    """Validation episodes in each of them."""

    def __post_init__(self) -> None:
        positive = (
            "updates", "batch", "chunk", "questions", "groups", "evaluate_every",
            "evaluate_episodes",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.batch % self.groups:
            raise UsageError(f"{self.groups} groups do not divide a batch of {self.batch}")
        if not 0 < self.query_share <= 1:
            raise UsageError(f"query_share is {self.query_share}: give a share in (0, 1]")
        if not 0 <= self.query_from < 1 or not 0 <= self.rare_queries <= 1:
            raise UsageError(
                f"query_from {self.query_from}, rare_queries {self.rare_queries}: "
                "give shares below 1, and up to 1"
            )
        if self.query_limit < 0:
            raise UsageError(f"query_limit is {self.query_limit}: give at least 0")
        if not self.lr > 0 or not 0 <= self.final_lr <= 1:
            raise UsageError(f"lr {self.lr} and final_lr {self.final_lr}: lr > 0, share in [0, 1]")
        if not self.gate_rate > 0:
            raise UsageError(f"gate_rate is {self.gate_rate}: give a factor above 0")
        if not 0 <= self.average < 1:
            raise UsageError(f"average is {self.average}: give a decay in [0, 1)")
        if self.horizon < 0 or self.horizon_growth <= 1:
            raise UsageError(
                f"horizon {self.horizon}, horizon_growth {self.horizon_growth}: "
                "give at least 0 steps and a factor above 1"
            )

    def rate(self, update: int) -> float:
        """Learning rate of update number ``update`` (from 0): a pure function, nothing to save."""
        if update < self.warmup:
            return self.lr * (update + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        begin = max(self.warmup, self.hold)
        span = max(1, (self.fall or self.updates) - begin)
        done = min(1.0, max(0.0, (update - begin) / span))
        fall = done if self.schedule == "linear" else (1 - math.cos(math.pi * done)) / 2
        return self.lr * (1 - fall * (1 - self.final_lr))
