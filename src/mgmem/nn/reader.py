"""Readers: multigrid CNNs that see a memory's hidden state at every layer and never write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.nn.conv import MultigridCNN
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, as_mesh, grid_shape


class MultigridReader(MultigridCNN):
    """Answers queries from a memory.

    The first layers mirror the memory's, as MG-conv; each hands on its output joined with the
    memory's hidden state of the same layer. The ``tail`` then leads to the answer: to the finest
    grid ("1-3:16 2-3:16 3:1"), to the coarsest ("0-2:16 0-1:16 0:1") or to any levels.
    """

    def __init__(
        self,
        memory: str | MeshSpec,
        input: int | str | LayerSpec,
        tail: str | MeshSpec,
        base: Sequence[int] = (3, 3),
        **options: Any,
    ) -> None:
        memory = as_mesh(memory)
        super().__init__(input, memory + as_mesh(tail), base, sees=memory, **options)

    def forward(  # type: ignore[override]
        self, query: Tensor | Pyramid, h: Sequence[Pyramid], times: Tensor | None = None
    ) -> Any:
        """Read.

        Args:
            query: (time, batch, channels, *space), or (batch, channels, *space) after a step.
            h: the hidden states that ``MultigridMemory`` returned, same leading dimensions.
            times: (queries,) int64; read at these steps only; ``query`` then has as many.

        Returns:
            (time or queries, batch, channels, *space) of the tail's last layer; a Pyramid if
            that has several levels.
        """
        memory = h if times is None else [layer.map(lambda g: g[times]) for layer in h]
        spatial = len(self.base)
        if not isinstance(query, Pyramid):
            query = Pyramid(self.input.lowest, (query,))
        leading = query.grids[0].shape[: -1 - spatial]
        answer = recorded.run_network(self, query, memory, leading)
        if answer is None:
            self._check_memory(memory, leading)
            flatten = _flattener(spatial)
            answer = super().forward(query.map(flatten), [layer.map(flatten) for layer in memory])
            answer = answer.map(lambda grid: grid.unflatten(0, leading) if leading else grid[0])
        return answer.grids[0] if len(answer) == 1 else answer

    def _check_memory(self, memory: Sequence[Pyramid], leading: Sequence[int]) -> None:
        assert self.sees is not None
        if len(memory) != len(self.sees):
            raise UsageError(
                f"a memory of {len(memory)} layers; this reader was built for {self.sees}"
            )
        for number, (layer, pyramid) in enumerate(zip(self.sees, memory, strict=True), 1):
            if pyramid.levels != layer.levels:
                raise UsageError(
                    f"memory layer {number} has levels {list(pyramid.levels)}; "
                    f"this reader expects {list(layer.levels)}"
                )
            for level, grid in zip(layer.levels, pyramid, strict=True):
                expected = (layer.channels, *grid_shape(self.base, level))
                seen, given = grid.shape[: -len(expected)], grid.shape[-len(expected) :]
                if tuple(given) != expected:
                    raise UsageError(
                        f"memory layer {number}, level {level} is {tuple(given)}; "
                        f"this reader expects {expected}"
                    )
                if tuple(seen) != tuple(leading):
                    raise UsageError(
                        f"queries of leading shape {tuple(leading)}, memory of {tuple(seen)}: "
                        "they must match; use times= to read at some steps only"
                    )


def _flattener(spatial: int) -> Any:
    """A function (…, channels, *space) to (N, channels, *space)."""

    def flatten(grid: Tensor) -> Tensor:
        return grid.reshape(-1, *grid.shape[-1 - spatial :])

    return flatten
