"""The learning rate over a stage: it rises, holds, falls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mgmem.errors import UsageError


@dataclass(frozen=True)
class Rate:
    """A learning rate that rises from zero, may hold its peak, and falls."""

    peak: float = 3e-3
    """Highest learning rate."""
    warmup: int = 100
    """Updates over which it rises from zero."""
    hold: int = 0
    """Update until which it stays at its peak."""
    fall: int = 0
    """Update by which it has fallen, and then stays; 0: the stage's last."""
    final: float = 0.1
    """Rate in the end, as a share of the peak."""
    shape: Literal["constant", "linear", "cosine"] = "cosine"
    """How it falls; constant: not at all."""

    def __post_init__(self) -> None:
        if not 0 < self.peak < math.inf or not 0 <= self.final <= 1:
            raise UsageError(
                f"a rate with peak {self.peak} and final {self.final}: give a finite peak above 0 "
                "and a share from 0 to 1"
            )
        for name in ("warmup", "hold", "fall"):
            if getattr(self, name) < 0:
                raise UsageError(f"the rate's {name} is {getattr(self, name)}: give at least 0")

    def at(self, update: int, updates: int) -> float:
        """Rate of update number ``update`` (from 0) of ``updates``: nothing to save."""
        if update < self.warmup:
            return self.peak * (update + 1) / self.warmup
        if self.shape == "constant":
            return self.peak
        begin = max(self.warmup, self.hold)
        span = max(1, (self.fall or updates) - begin)
        done = min(1.0, max(0.0, (update - begin) / span))
        fallen = done if self.shape == "linear" else (1 - math.cos(math.pi * done)) / 2
        return self.peak * (1 - fallen * (1 - self.final))
