"""How pictures look at a memory: the channels that tell most, and the map read out of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mgmem.nn.read_write import ReadWrite
from mgmem.nn.state import MemoryState
from mgmem.report.map_probe import LinearProbe, best_channels, fit_probe
from mgmem.report.memory import WALL, Image
from mgmem.report.moments import (
    beliefs,
    can_ask_everything,
    collect,
    maze_patches,
    moment_of,
    region,
)
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps

_KNOWN = 0.5  # votes, or the probe's own word, from which on a cell counts as known


@dataclass(frozen=True)
class MapView:
    """Chosen and fitted on training episodes; reads maps out of states of one sequence.

    channels: those of h and of c that tell walls from free cells best, numbered from 0.
    patches: what the reader is asked for, (P, k, k); None where there would be too many.
    """

    model: ReadWrite
    task: Mapping
    channels: tuple[int, int]
    probe: LinearProbe
    patches: Tensor | None

    @torch.no_grad()
    def read(
        self, state: MemoryState, explored: npt.NDArray[np.int8]
    ) -> tuple[Image, Image | None]:
        """The map by the probe and by the reader, (grid, grid): 0 free, 1 wall, NaN not known.

        ``explored``: (grid, grid), what the agent has seen, only to have it beside.
        """
        inside = region(self.task)
        truth = torch.from_numpy(explored[inside, inside].astype(np.int64))[None]
        moment = moment_of(self.model.memory, state, truth > 0, truth == WALL)
        seen, wall = self.probe.read(moment, self.task)[0]
        probed = self._placed(wall.clamp(0, 1), seen)
        if self.patches is None:
            return probed, None
        said, votes = beliefs(self.model, self.task, moment, self.patches)
        return probed, self._placed(said[0], votes[0])

    def _placed(self, wall: Tensor, known: Tensor) -> Image:
        """(world, world) on the map of answers, NaN where it is not known."""
        inside = region(self.task)
        picture = np.full((self.task.grid, self.task.grid), np.nan, np.float32)
        picture[inside, inside] = np.where(known.numpy() >= _KNOWN, wall.numpy(), np.nan)
        return picture


def choose_view(model: nn.Module, task: Mapping, episodes: int = 60) -> MapView | None:
    """The view that shows most, measured on training episodes; None for models without grids."""
    if not isinstance(model, ReadWrite):
        return None
    steps = query_steps(task.episode_length, 6).tolist()
    moments = collect(model, task, SeedStream(TEST_SEED, "train"), 0, episodes, steps)
    patches = maze_patches(task) if can_ask_everything(task) else None
    best = best_channels(moments, task)
    return MapView(model, task, best, fit_probe(moments, task), patches)
