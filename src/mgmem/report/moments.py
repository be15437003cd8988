"""What many memories hold at some moments of their walks, beside the truth: food for measures.

`memory` follows one walk for pictures; here are many walks, for numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.nn.conv import add_residual
from mgmem.nn.fit import fitted
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.read_write import ReadWrite
from mgmem.nn.reader import MultigridReader
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid
from mgmem.report.memory import WALL, first_seen, path_on_map
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.maze import make_mazes
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED

_EPISODES_AT_ONCE = 25
_QUERIES_AT_ONCE = 128
_LARGEST_QUERY = 3  # 2^9 patches can be asked for one by one, 2^25 can not


@dataclass(frozen=True)
class Moments:
    """N moments; maps are of the maze's region only, (N, world, world) where it is there whole.

    hidden, cell: the finest grid of the deepest layer, (N, channels, side, side).
    outputs: what the memory's layers show to readers, grids (N, channels, *space).
    seen, wall: which cells had been seen by then, and which are walls.
    """

    hidden: Tensor
    cell: Tensor
    outputs: tuple[Pyramid, ...]
    seen: Tensor
    wall: Tensor

    def __len__(self) -> int:
        return len(self.seen)


def region(task: Mapping) -> slice:
    """Rows, and columns, of the answers' grid that the maze covers.

    All that an agent walks on is there; where the grid is full, some of the border is not.
    """
    corner = task.grid // 2 - task.start
    return slice(max(0, corner), min(task.grid, corner + task.world))


def walkable(task: Mapping) -> Tensor:
    """Which cells of the region are no border: (region, region) bool."""
    cells = torch.arange(task.grid)[region(task)] - task.grid // 2 + task.start
    inside = (cells > 0) & (cells < task.world - 1)
    return inside[:, None] & inside


@torch.no_grad()
def collect(
    model: nn.Module,
    task: Mapping,
    stream: SeedStream,
    first: int,
    count: int,
    steps: Sequence[int],
) -> Moments:
    """Episodes first, ..., first + count - 1 of a stream, after each of ``steps`` (from 0)."""
    if not isinstance(model, ReadWrite):
        raise UsageError(
            f"{type(model).__name__} holds no grids to read a map off: give a multigrid memory"
        )
    parts = []
    was_training = model.training
    model.eval()
    for start in range(first, first + count, _EPISODES_AT_ONCE):
        episodes = min(_EPISODES_AT_ONCE, first + count - start)
        parts += _walk(model, task, stream, start, episodes, steps)
    model.train(was_training)
    outputs = zip(*(part.outputs for part in parts), strict=True)
    return Moments(
        hidden=torch.cat([part.hidden for part in parts]),
        cell=torch.cat([part.cell for part in parts]),
        outputs=tuple(_joined(layers) for layers in outputs),
        seen=torch.cat([part.seen for part in parts]),
        wall=torch.cat([part.wall for part in parts]),
    )


def _joined(layers: Sequence[Pyramid]) -> Pyramid:
    grids = zip(*layers, strict=True)
    return Pyramid(layers[0].lowest, tuple(torch.cat(level) for level in grids))


def _walk(
    model: ReadWrite,
    task: Mapping,
    stream: SeedStream,
    first: int,
    count: int,
    steps: Sequence[int],
) -> list[Moments]:
    """One batch of episodes from start to end; a Moments after each step."""
    run = task.episodes(stream, first, count)
    no_questions = torch.zeros(0, dtype=torch.int64)
    observed = run.batch(0, run.length, no_questions).inputs
    seen_at, wall = _maps(observed, task)
    inputs = observed.to(next(model.parameters()).device)
    memory, state, start, moments = model.memory, None, 0, []
    for step in sorted(steps):
        x = fitted(inputs[start : step + 1], memory.input, memory.base, model.fit)
        _, state = memory(x, state)
        moments.append(moment_of(memory, state, seen_at <= step, wall))
        start = step + 1
    return moments


def moment_of(memory: MultigridMemory, state: MemoryState, seen: Tensor, wall: Tensor) -> Moments:
    """A memory's state beside the truth, ``seen`` and ``wall`` (N, world, world)."""
    deepest = state.layers[-1]
    handed_on: list[Pyramid] = []
    for index, layer in enumerate(state.layers):  # as MultigridMemory does, from h alone
        outputs = memory.norms[index](layer.h) if memory.norms else layer.h
        if memory.residual and index >= 2 and index % 2 == 0:
            outputs = add_residual(outputs, handed_on[index - 2], len(memory.base))
        handed_on.append(outputs)
    hidden, cell = deepest.h.finest.cpu(), deepest.c.finest.cpu()
    return Moments(hidden, cell, tuple(handed_on), seen, wall)


def _maps(observed: Tensor, task: Mapping) -> tuple[Tensor, Tensor]:
    """When each cell of the maze was first seen, and whether it is a wall: (B, world, world)."""
    inside = region(task)
    maps = []
    for episode in observed.unbind(1):
        seen_at, kind = first_seen(episode, path_on_map(episode, task), task.grid)
        maps.append((seen_at[inside, inside], kind[inside, inside] == WALL))
    moments, kinds = zip(*maps, strict=True)
    return torch.from_numpy(np.stack(moments)), torch.from_numpy(np.stack(kinds))


def can_ask_everything(task: Mapping) -> bool:
    """Whether the first reader's patches are small enough to ask for every one there is."""
    return task.queries[0] <= _LARGEST_QUERY


@torch.no_grad()
def beliefs(
    model: ReadWrite, task: Mapping, moments: Moments, patches: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What the reader believes of every cell, asked for ``patches`` (None: every one there is).

    A patch said to be at a place votes, with its probability, for what each of its cells is. A
    cell's belief in a wall is the share of the votes for it.

    Returns:
        wall (N, world, world) from 0 to 1, one half where nobody votes; and the votes.
    """
    if not can_ask_everything(task):
        size = task.queries[0]
        raise UsageError(f"there are 2^{size * size} patches of {size}x{size}: too many to ask for")
    inside = region(task)
    patches = _all_patches(task.queries[0]) if patches is None else patches
    asked = _queries(model, patches)
    maps = [
        _votes(model, asked, patches, [layer.map(itemgetter(n)) for layer in moments.outputs])
        for n in range(len(moments))
    ]
    wall, total = (torch.stack(part)[:, inside, inside] for part in zip(*maps, strict=True))
    return torch.where(total > 0, wall / total.clamp(min=1e-9), 0.5), total


def _all_patches(size: int) -> Tensor:
    """Walls of every patch: (2^(k k), k, k), 1 for a wall."""
    numbers = torch.arange(2 ** (size * size))
    walls = (numbers[:, None] >> torch.arange(size * size)) & 1
    return walls.view(-1, size, size).float()


def maze_patches(task: Mapping, mazes: int = 300) -> Tensor:
    """Walls of the patches that mazes have, about a quarter of all: (P, k, k)."""
    walls = make_mazes(SeedStream(TEST_SEED, "train").keys(0, mazes), task.world)
    size = task.queries[0]
    windows = np.lib.stride_tricks.sliding_window_view(walls, (size, size), axis=(1, 2))
    return torch.from_numpy(np.unique(windows.reshape(-1, size, size), axis=0)).float()


def _queries(model: ReadWrite, walls: Tensor) -> Tensor | Pyramid:
    """Questions for patches (P, k, k): (P, channels, *space), or a pyramid of such."""
    nowhere = torch.zeros_like(walls)
    queries = torch.stack([1 - walls, walls, nowhere, nowhere], 1)
    reader = model.readers[0]
    assert isinstance(reader, MultigridReader)
    weight = next(model.parameters())
    return fitted(queries.to(weight), reader.input, reader.base, model.query_fits[0])


def _votes(
    model: ReadWrite, asked: Tensor | Pyramid, patches: Tensor, outputs: Sequence[Pyramid]
) -> tuple[Tensor, Tensor]:
    """Votes for a wall and all votes, (grid, grid); ``outputs`` are of one moment."""
    count, size, _ = patches.shape
    wall, total = torch.zeros(size * size, 1), torch.zeros(1, 1)
    for first in range(0, count, _QUERIES_AT_ONCE):
        part = slice(first, first + _QUERIES_AT_ONCE)
        query = asked[part] if isinstance(asked, Tensor) else asked.map(itemgetter(part))
        memory = [_repeated(layer, len(patches[part])) for layer in outputs]
        said = model.readers[0](query, memory)[:, 0].float().sigmoid().cpu()
        grid = said.shape[-1]
        wall = wall + patches[part].flatten(1).T @ said.flatten(1)
        total = total + said.flatten(1).sum(0, keepdim=True)
    votes = torch.stack([wall, total.expand_as(wall)])
    wall, total = F.fold(votes, (grid, grid), size, padding=size // 2)[:, 0].unbind(0)
    return wall, total


def _repeated(layer: Pyramid, count: int) -> Pyramid:
    """Grids of one moment as a batch of ``count`` equal ones."""
    return layer.map(lambda grid: grid.expand(count, *grid.shape).contiguous())
