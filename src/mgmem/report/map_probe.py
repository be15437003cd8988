"""Is the map in the memory? A linear probe that reads it off, and how well each view of it does.

The claim "the memory mirrors the map" becomes a number: how well walls are told from free cells
that have been seen, from what lies at the same place of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.nn.read_write import ReadWrite
from mgmem.report.moments import Moments, beliefs, can_ask_everything, collect, region, walkable
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps

Numbers = npt.NDArray[np.float64]

PERIOD = 4
"""A cell's weights depend on its row and column modulo this. Grids two levels coarser, seen
through nearest upsampling, differ in just these places from cell to cell."""

_RIDGE = 3.0
_MOMENTS = 5


@dataclass(frozen=True)
class LinearProbe:
    """Whether a cell was seen and is a wall, each a weighted sum of h and c around it.

    weight: (phases, 2, 2 * channels * (2 * reach + 1)²), bias: (phases, 2), with a phase for each
    row and column modulo ``period``; first whether it was seen, then whether it is a wall.
    """

    reach: int
    period: int
    weight: Tensor
    bias: Tensor

    def read(self, moments: Moments, task: Mapping) -> Tensor:
        """(N, 2, world, world): seen and wall, about 0 to 1."""
        features, phase = _features(moments, task, self.reach), _phases(task, self.period)
        weight, bias = self.weight[phase], self.bias[phase]  # one for each cell of the map
        found: Tensor = torch.einsum("nfij,ijof->noij", features, weight) + bias.permute(2, 0, 1)
        return found


def fit_probe(moments: Moments, task: Mapping, reach: int = 1) -> LinearProbe:
    """Least squares with a little ridge, on episodes that nothing else is measured on."""
    features, period = _features(moments, task, reach), PERIOD * _factor(task, moments)
    phase = _phases(task, period)
    mean = features.mean((0, 2, 3))
    spread = features.std((0, 2, 3)) + 1e-3
    weights, biases = [], []
    for index in range(period**2):
        rows, columns = torch.nonzero(phase == index, as_tuple=True)
        x = (features[:, :, rows, columns].transpose(1, 2) - mean) / spread
        seen, wall = (part[:, rows, columns].flatten() for part in (moments.seen, moments.wall))
        x = F.pad(x.flatten(0, 1), (0, 1), value=1.0).double()
        solved = torch.stack(
            [_ridge(x, seen.double()), _ridge(x[seen], wall[seen].double())]
        ).float()
        weight = solved[:, :-1] / spread
        weights.append(weight)
        biases.append(solved[:, -1] - weight @ mean)
    return LinearProbe(reach, period, torch.stack(weights), torch.stack(biases))


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    penalty = _RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
    penalty[-1, -1] = 1e-6  # the constant is free
    return torch.linalg.solve(x.T @ x + penalty, x.T @ y)


def _factor(task: Mapping, moments: Moments) -> int:
    """Cells of the map along a side of one cell of the memory."""
    side = moments.hidden.shape[-1]
    if task.grid % side:
        raise UsageError(
            f"the memory's finest grid is {side}x{side}, the map {task.grid}x{task.grid}: no "
            "multiple of it, so their cells can not be compared"
        )
    return task.grid // side


def _features(moments: Moments, task: Mapping, reach: int) -> Tensor:
    """h and c around every cell of the maze: (N, features, world, world)."""
    both = torch.cat([moments.hidden, moments.cell], 1)
    side = 2 * reach + 1
    around = F.unfold(both, side, padding=reach).unflatten(-1, both.shape[-2:])
    factor, inside = _factor(task, moments), region(task)
    around = around.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
    return around[:, :, inside, inside]


def _phases(task: Mapping, period: int) -> Tensor:
    """The phase of every cell of the maze: (world, world)."""
    place = torch.arange(task.grid)[region(task)] % period
    return place[:, None] * period + place


@dataclass(frozen=True)
class MapRow:
    """How well one view of the memory tells walls from free cells among the cells seen."""

    view: str
    auc: float
    auc_alike: float
    """AUC among cells that are alike in row and column modulo `PERIOD`, the mean over these
    groups: what is left when place, which tells much of a maze, tells nothing."""
    right: float
    """Share of the cells seen that are told right."""


@dataclass(frozen=True)
class MapMeasure:
    """Every view of a memory, measured on the same cells.

    channels: (h, c) the channels that tell most, numbered from 0.
    """

    episodes: int
    cells: int
    rows: tuple[MapRow, ...]
    channels: tuple[int, int]


def measure_map(
    model: nn.Module,
    task: Mapping,
    episodes: int = 100,
    fit_on: int = 100,
    believe: bool = True,
) -> MapMeasure:
    """Measure on ``episodes`` test episodes what is fitted on ``fit_on`` training episodes.

    Five moments of each episode count, and of these the cells seen by then, without the border,
    which is always wall. Channels and thresholds are chosen on the training episodes as well.
    """
    if episodes < 1 or fit_on < 1:
        raise UsageError(f"{episodes} episodes and {fit_on} to fit on: give at least 1 of each")
    steps = query_steps(task.episode_length, _MOMENTS).tolist()
    known = collect(model, task, SeedStream(TEST_SEED, "train"), 0, fit_on, steps)
    fresh = collect(model, task, SeedStream(TEST_SEED, "test"), 0, episodes, steps)
    before, judge, best = _Cells(known, task), _Cells(fresh, task), best_channels(known, task)

    def picture(name: str, values: Callable[[Moments], Tensor]) -> MapRow:
        """A plain picture of the memory, its sign and threshold chosen on known episodes."""
        sign, cut = _best_cut(before.of(on_map(values(known), task)), before.wall)
        return judge.row(name, sign * judge.of(on_map(values(fresh), task)), cut)

    rows = [
        judge.row("its place alone, no memory", before.walls_by_place()[judge.places]),
        picture("h, mean over channels", lambda m: m.hidden.mean(1)),
        picture("c, mean over channels", lambda m: m.cell.mean(1)),
        picture(f"h, channel {best[0] + 1}", lambda m: m.hidden[:, best[0]]),
        picture(f"c, channel {best[1] + 1}", lambda m: m.cell[:, best[1]]),
    ]
    for reach, name in ((0, "linear probe, the cell alone"), (1, "linear probe, 3x3 around")):
        said = fit_probe(known, task, reach).read(fresh, task)[:, 1]
        rows.append(judge.row(name, judge.of(said)))
    if believe and isinstance(model, ReadWrite) and can_ask_everything(task):
        said, _ = beliefs(model, task, fresh)
        rows.append(judge.row("the reader, asked for every patch", judge.of(said)))
    return MapMeasure(episodes, len(judge.wall), tuple(rows), best)


class _Cells:
    """The cells that count: seen, and not on the border, which is always wall."""

    def __init__(self, moments: Moments, task: Mapping) -> None:
        self._counted = moments.seen & walkable(task)
        self.wall = moments.wall[self._counted].numpy()
        phases = _phases(task, PERIOD).expand(len(moments), -1, -1)
        self.places = phases[self._counted].numpy()

    def of(self, maps: Tensor) -> Numbers:
        """The values of maps (N, world, world) in these cells."""
        return maps[self._counted].double().numpy()

    def walls_by_place(self) -> Numbers:
        """The share of walls in each phase: (phases,)."""
        counts = np.bincount(self.places, minlength=PERIOD**2)
        walls = np.bincount(self.places, self.wall, minlength=PERIOD**2)
        return walls / np.maximum(counts, 1)

    def row(self, name: str, scores: Numbers, cut: float = 0.5) -> MapRow:
        """How well scores tell walls."""
        right = float(((scores > cut) == self.wall).mean())
        return MapRow(name, auc(scores, self.wall), self.auc_alike(scores), right)

    def auc_alike(self, scores: Numbers, signed: bool = True) -> float:
        """Mean AUC over phases with walls and free cells; not ``signed``: whatever its side."""
        groups = [self.places == place for place in np.unique(self.places)]
        groups = [group for group in groups if len(np.unique(self.wall[group])) == 2]
        found = [auc(scores[group], self.wall[group]) for group in groups] or [0.5]
        return float(np.mean(found if signed else [0.5 + abs(a - 0.5) for a in found]))


def on_map(picture: Tensor, task: Mapping) -> Tensor:
    """(N, side, side) of the memory's finest grid as it lies on the maze: (N, world, world)."""
    factor, inside = task.grid // picture.shape[-1], region(task)
    large = picture.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
    return large[:, inside, inside]


def best_channels(moments: Moments, task: Mapping) -> tuple[int, int]:
    """The channels of h and of c that tell walls best among cells alike in place."""
    cells = _Cells(moments, task)

    def best(grids: Tensor) -> int:
        channels = range(grids.shape[1])
        maps = (cells.of(on_map(grids[:, channel], task)) for channel in channels)
        return int(np.argmax([cells.auc_alike(scores, signed=False) for scores in maps]))

    return best(moments.hidden), best(moments.cell)


def auc(scores: Numbers, positive: npt.NDArray[np.bool_]) -> float:
    """The chance that a positive scores higher than a negative, ties counting half."""
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return 0.5
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (counts.cumsum() - (counts - 1) / 2)[place.reshape(-1)]
    return float((rank[positive].sum() - many * (many + 1) / 2) / (many * few))


def _best_cut(scores: Numbers, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Sign and threshold with which most are told right: sign * score > threshold."""
    sign = 1.0 if auc(scores, positive) >= 0.5 else -1.0
    order = np.argsort(sign * scores, kind="stable")
    ordered = (sign * scores)[order]
    # Right, if everything from place i on is called positive.
    right = np.concatenate([[0], np.cumsum(~positive[order])]) + np.concatenate(
        [np.cumsum(positive[order][::-1])[::-1], [0]]
    )
    place = int(np.argmax(right))
    return sign, float(ordered[place - 1]) if place else float("-inf")
