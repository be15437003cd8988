"""What a mapping memory remembers: an episode run step by step, and what is in its grids.

`memory_figure` draws what is collected here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import ask
from mgmem.nn.state import MemoryState
from mgmem.tasks.base import Batch
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED

Image = npt.NDArray[np.float32]
Cells = npt.NDArray[np.int64]

UNKNOWN, FREE, WALL = 0, 1, 2
"""Values of explored maps."""

_NEVER = np.iinfo(np.int64).max


class View(Protocol):
    """Chooses what of a memory is shown, and reads maps out of it."""

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of h and of c to show."""

    def read(
        self, state: MemoryState, explored: npt.NDArray[np.int8]
    ) -> tuple[Image, Image | None]:
        """Maps by a probe and by the reader, (grid, grid)."""


@dataclass(frozen=True)
class Moment:
    """An episode after one of its steps; maps are (grid, grid), the start at (grid//2, grid//2).

    step: number of the step, from 0.
    explored: UNKNOWN, FREE or WALL, as far as the agent has seen by now.
    path: (step + 1, 2) rows and columns of the agent on the map.
    hidden, cell: the finest grid of the memory's deepest layer, (side, side): one channel, or
        the mean of all; None for models whose memory is no grid.
    probed, believed: the map read out of the memory, (grid, grid), 0 free, 1 wall, NaN not known:
        by a linear probe, and by asking the reader; None where it is not read.
    query: (k, k), FREE or WALL; None while no window has been seen completely.
    target: 1 where the query was seen. answer: the model's probabilities for that.
    """

    step: int
    explored: npt.NDArray[np.int8]
    path: Cells
    hidden: Image | None
    cell: Image | None
    query: npt.NDArray[np.int8] | None
    target: Image
    answer: Image
    probed: Image | None = None
    believed: Image | None = None

    def right(self, part: str) -> float:
        """Share of the cells seen that "probed" or "believed" tells right."""
        seen, said = self.explored != UNKNOWN, getattr(self, part)
        right = np.where(np.isnan(said), False, (said > 0.5) == (self.explored == WALL))
        return float(right[seen].mean()) if seen.any() else 1.0

    def verdict(self) -> tuple[int, int, int]:
        """Places found, missed, and named wrongly (probability at least 0.5)."""
        said, true = self.answer >= 0.5, self.target >= 0.5
        return int((said & true).sum()), int((~said & true).sum()), int((said & ~true).sum())


@dataclass(frozen=True)
class History:
    """Moments of one episode. `name` is for titles; `channels` those of the memory's grid.

    chosen: the channels of h and of c that are shown, numbered from 0; None: the mean of all.
    """

    name: str
    episode: int
    length: int
    grid: int
    channels: int | None
    moments: tuple[Moment, ...]
    chosen: tuple[int, int] | None = None

    def shown(self, part: str) -> str:
        """In words what "hidden" or "cell" shows."""
        if self.chosen is None:
            return f"mean of {self.channels} channels"
        return f"channel {self.chosen[part == 'cell'] + 1} of {self.channels}"

    def limits(self, part: str) -> tuple[float, float]:
        """A range of colours for "hidden" or "cell" that suits all moments alike."""
        grids = [getattr(moment, part) for moment in self.moments]
        low, high = np.percentile(np.stack(grids), (0.5, 99.5))
        return (float(low), float(high)) if high > low else (float(low), float(low) + 1.0)

    def at(self, steps: Sequence[int]) -> History:
        """The same history with the moments of some of its steps only."""
        wanted = set(steps)
        return replace(self, moments=tuple(m for m in self.moments if m.step in wanted))

    def telling(self) -> int:
        """Index of a moment worth a picture, chosen by its question alone, not by the answer.

        Late enough for a map, early enough for unseen places; a patch with walls and free cells
        that was seen in many places.
        """

        def worth(index: int) -> tuple[bool, bool, float, int]:
            moment = self.moments[index]
            middle = 0.5 * self.length <= moment.step < 0.85 * self.length
            query = moment.query
            mixed = query is not None and query.min() != query.max()
            return middle, mixed, float(moment.target.sum()), index

        return max(range(len(self.moments)), key=worth)


@torch.no_grad()
def remember(
    model: nn.Module,
    task: Mapping,
    episode: int = 0,
    steps: Sequence[int] | None = None,
    *,
    name: str = "mapping",
    reader: int = 0,
    stream: SeedStream | None = None,
    view: View | None = None,
) -> History:
    """Run an episode and keep what is there after ``steps`` (None: after every step).

    ``view`` says which channels to keep and reads maps; see `map_view`. None: means, no maps.

    The model is queried after these steps and no others. ``stream``: None means the test
    episodes that `mgmem evaluate` scores.
    """
    if episode < 0:
        raise UsageError(f"episode {episode}: episodes are numbered from 0")
    run = task.episodes(stream or SeedStream(TEST_SEED, "test"), episode, 1)
    moments_at = _checked_steps(steps, run.length)
    observed = run.batch(0, run.length, torch.zeros(0, dtype=torch.int64)).inputs[:, 0]
    path = path_on_map(observed, task)
    seen_at, walls = first_seen(observed, path, task.grid)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    state, start, moments = None, 0, []
    for step in moments_at:
        piece = run.batch(start, step + 1, torch.tensor([step - start]))
        moved = piece.to(device)
        answers, state = ask(model, moved, state)
        hidden, cell = _deepest(state)
        explored = np.where(seen_at <= step, walls, UNKNOWN).astype(np.int8)
        probed, believed = (None, None) if view is None else view.read(state, explored)
        chosen = (None, None) if view is None else view.channels
        moments.append(
            Moment(
                step=step,
                explored=explored,
                path=path[: step + 1],
                hidden=None if hidden is None else _shown(hidden, chosen[0]),
                cell=None if cell is None else _shown(cell, chosen[1]),
                probed=probed,
                believed=believed,
                query=_query(piece, reader),
                target=_picture(piece.targets[reader][0, 0, 0]),
                answer=_picture(answers[reader][0, 0, 0].float().sigmoid()),
            )
        )
        start = step + 1
    model.train(was_training)
    channels = None if hidden is None else hidden.shape[0]
    chosen_channels = None if view is None else view.channels
    return History(name, episode, run.length, task.grid, channels, tuple(moments), chosen_channels)


def _checked_steps(steps: Sequence[int] | None, length: int) -> list[int]:
    if steps is None:
        return list(range(length))
    if not steps or min(steps) < 0 or max(steps) >= length:
        raise UsageError(f"steps {list(steps)}: episodes have steps 0 to {length - 1}")
    return sorted(set(steps))


def path_on_map(observed: Tensor, task: Mapping) -> Cells:
    """Where the agent is on the map, from the location channels of (T, 4, m, m): (T, 2)."""
    location = observed[:, 2:, 0, 0].numpy()
    if task.location == "raw":
        relative = location - task.world
    else:
        scale = 2 / task.grid if task.location_scale is None else task.location_scale
        relative = location / scale
    return np.rint(relative).astype(np.int64) + task.grid // 2


def first_seen(
    observed: Tensor, path: Cells, grid: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """When each cell of the map came into view, and what it is; from (T, 4, m, m)."""
    view = observed.shape[-1]
    pad = view // 2  # what is seen beyond the map's edge is cut off again
    seen_at = np.full((grid + 2 * pad,) * 2, _NEVER)
    kind = np.zeros_like(seen_at, dtype=np.int8)
    patches = np.where(observed[:, 1].numpy() > 0.5, WALL, FREE)
    for step in reversed(range(len(path))):  # the earliest look is written last, and stays
        row, column = path[step]
        window = np.s_[row : row + view, column : column + view]
        seen_at[window] = step
        kind[window] = patches[step]
    inside = np.s_[pad : pad + grid, pad : pad + grid]
    return seen_at[inside], kind[inside]


def _deepest(state: object) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Hidden state and cells on the deepest layer's finest grid, (channels, side, side) each."""
    if not isinstance(state, MemoryState):
        return None, None
    last = state.layers[-1]
    return last.h.finest[0], last.c.finest[0]


def _query(piece: Batch, reader: int) -> npt.NDArray[np.int8] | None:
    if piece.weight is not None and not bool(piece.weight[reader, 0, 0]):
        return None
    wall = piece.queries[reader][0, 0, 1].numpy() > 0.5
    return np.where(wall, WALL, FREE).astype(np.int8)


def _shown(grids: Tensor, channel: int | None) -> Image:
    """One channel of (channels, side, side), or the mean of all."""
    return _picture(grids.mean(0) if channel is None else grids[channel])


def _picture(values: Tensor) -> Image:
    return values.detach().cpu().float().numpy()
