"""What a policy looks at: its memory, or a map, seen from where the agent stands.

A sight takes in observations one step at a time and hands out a window of ``window`` x ``window``
cells around the agent, (B, channels, window, window) in half precision. It has nothing to learn,
so windows are kept as they are and a policy trains on them without running any recurrence again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.nn import MultigridMemory
from mgmem.nn.state import MemoryState
from mgmem.rl.explored import ExploredMap
from mgmem.rl.walks import Observation

Bools = npt.NDArray[np.bool_]

STORED = torch.float16


class Sight(Protocol):
    """A source of windows, with the state of B walks in it."""

    @property
    def channels(self) -> int:
        """Numbers per cell of a window."""

    def look(self, observation: Observation, inputs: Tensor, fresh: Bools) -> Tensor:
        """Take in an observation and give (B, channels, window, window).

        inputs: (B, 4, m, m), the observation as a memory is told it; fresh: (B,), walks that have
        just begun.
        """

    def tensors(self) -> dict[str, Tensor]:
        """The state, for a checkpoint."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""


class NoSight:
    """Nothing: for policies that know only the moment, or remember by themselves."""

    channels = 0

    def look(self, observation: Observation, inputs: Tensor, fresh: Bools) -> Tensor:
        """(B, 0, 1, 1)."""
        return torch.empty(len(fresh), 0, 1, 1, dtype=STORED)

    def tensors(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to do."""


class MemorySight:
    """A frozen memory: every level of its last layer's hidden state, around the agent.

    The finest grid is a map centred on the start, as the localization reader's answers are; a
    coarser grid's cell lies under several of its cells and appears under each.
    """

    def __init__(self, memory: MultigridMemory, grid: int, window: int) -> None:
        """grid: side of the memory's finest level; the memory is frozen here for good."""
        finest = memory.base[0] * 2 ** memory.spec[-1].highest
        if finest != grid:
            raise UsageError(f"the memory's finest grid is {finest}, its map {grid}: name another")
        self.memory = memory.freeze()
        self.grid, self.window = grid, window
        self.channels = memory.spec[-1].channels * len(memory.spec[-1].levels)
        self.state: MemoryState | None = None

    @torch.no_grad()
    def look(self, observation: Observation, inputs: Tensor, fresh: Bools) -> Tensor:
        """Write the observation, then look around."""
        if self.state is None or self.state.batch != len(fresh):
            self.state = self.memory.initial_state(len(fresh))
        reset = torch.from_numpy(fresh) if fresh.any() else None
        h, self.state = self.memory.step(inputs, self.state, reset=reset)
        return around(list(h[-1]), observation["place"], self.grid, self.window)

    def tensors(self) -> dict[str, Tensor]:
        """Those of the memory's state."""
        return {} if self.state is None else self.state.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        self.state = self.memory.state_from_tensors(tensors) if tensors else None


class MapSight:
    """The true map of all that was seen and visited: what a perfect memory would hold."""

    channels = 3

    def __init__(self, grid: int, window: int) -> None:
        self.grid, self.window = grid, window
        self._map: ExploredMap | None = None

    def look(self, observation: Observation, inputs: Tensor, fresh: Bools) -> Tensor:
        """Draw what is seen into the map, then look around."""
        if self._map is None or len(self._map.planes) != len(fresh):
            self._map = ExploredMap(len(fresh), self.grid)
        self._map.update(observation, fresh)
        planes = torch.from_numpy(self._map.planes).to(STORED)
        return around([planes], observation["place"], self.grid, self.window)

    def tensors(self) -> dict[str, Tensor]:
        """The map."""
        return {} if self._map is None else {"planes": torch.from_numpy(self._map.planes.copy())}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        if tensors:
            self._map = ExploredMap(len(tensors["planes"]), self.grid)
            self._map.planes[:] = tensors["planes"].numpy()


def around(grids: Sequence[Tensor], places: npt.NDArray, grid: int, window: int) -> Tensor:
    """The window around each agent, out of maps of one or more resolutions.

    grids: (B, channels, side, side) each, side a divisor of ``grid``; places: (B, 2), rows and
    columns from the start, which is at (grid // 2, grid // 2). The agent is at
    (window // 2, window // 2) of its window. What lies beyond the map is 0.
    """
    cells = torch.from_numpy(places.astype(np.int64))[:, :, None] + torch.arange(window)
    cells += grid // 2 - window // 2
    inside = ((cells >= 0) & (cells < grid)).to(STORED)
    cells = cells.clamp(0, grid - 1)
    parts = []
    for values in grids:
        batch, channels, side, _ = values.shape
        rows, columns = (cells * side // grid).unbind(1)
        index = (rows[:, :, None] * side + columns[:, None, :]).reshape(batch, 1, -1)
        index = index.expand(batch, channels, window * window)
        parts.append(values.flatten(2).gather(2, index).to(STORED))
    seen = torch.cat(parts, 1).unflatten(2, (window, window))
    return seen * (inside[:, 0, :, None] * inside[:, 1, None, :])[:, None]
