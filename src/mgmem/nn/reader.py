"""Readers: multigrid CNNs that see a memory's hidden state at every layer and never write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.nn.conv import MultigridCNN
from mgmem.nn.inputs import Input, as_pyramid
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, Mesh, as_mesh, grid_shape


class MultigridReader(MultigridCNN):
    """Answers queries from a memory.

    The first layers mirror the memory's, as MG-conv; each hands on its output joined with the
    memory's hidden state of the same layer. The ``tail`` then leads to the answer: to the finest
    grid ("1-3:16 2-3:16 3:1"), to the coarsest ("0-2:16 0-1:16 0:1") or to any levels.
    """

    def __init__(
        self,
        memory: Mesh,
        input: int | str | LayerSpec,
        tail: Mesh,
        base: Sequence[int] = (3, 3),
        *,
        kernel: int = 3,
        norm: bool = False,
        residual: bool = True,
        final_relu: bool = False,
        batch_first: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        memory = as_mesh(memory)
        super().__init__(
            input,
            memory + as_mesh(tail),
            base,
            kernel=kernel,
            norm=norm,
            residual=residual,
            final_relu=final_relu,
            sees=memory,
            device=device,
            dtype=dtype,
        )
        self.batch_first = batch_first

    def forward(  # type: ignore[override]  # it needs a memory to read
        self,
        query: Input | PackedSequence,
        h: Sequence[Pyramid],
        times: Tensor | Sequence[int] | None = None,
    ) -> Any:
        """Read.

        Args:
            query: (time, batch, channels, *space), or (batch, channels, *space) after a step; an
                array; or packed, as ``h`` then is.
            h: the hidden states that ``MultigridMemory`` returned, same leading dimensions.
            times: (queries,) int64; read at these steps only; ``query`` then has as many.

        Returns:
            (time or queries, batch, channels, *space) of the tail's last layer; a Pyramid if
            that has several levels; packed if the query is.
        """
        if isinstance(query, PackedSequence):
            return self._read_packed(query, h, times)
        memory = h if times is None else self._at(h, times)
        spatial = len(self.base)
        if not isinstance(query, Pyramid):
            if not isinstance(query, Tensor):
                query = as_pyramid(query, self.input, self.base, next(self.parameters()))
            else:
                query = Pyramid(self.input.lowest, (query,))
        leading = query.grids[0].shape[: -1 - spatial]
        answer = recorded.run_network(self, query, memory, leading)
        if answer is None:
            self._check_memory(memory, leading)
            flatten = _flattener(spatial)
            answer = super().forward(query.map(flatten), [layer.map(flatten) for layer in memory])
            answer = answer.map(lambda grid: grid.unflatten(0, leading) if leading else grid[0])
        return answer.grids[0] if len(answer) == 1 else answer

    def _at(self, h: Sequence[Pyramid], times: Tensor | Sequence[int]) -> list[Pyramid]:
        """The memory after these steps."""
        times = torch.as_tensor(times)
        return [layer.map(lambda g: g[:, times] if self.batch_first else g[times]) for layer in h]

    def _read_packed(
        self, query: PackedSequence, h: Sequence[Pyramid], times: Tensor | Sequence[int] | None
    ) -> Any:
        """Steps side by side: a reader has no use for their order."""
        grids: list[Any] = [grid for layer in h for grid in layer]
        alike = all(
            isinstance(grid, PackedSequence) and torch.equal(grid.batch_sizes, query.batch_sizes)
            for grid in grids
        )
        if times is not None or not alike:
            raise UsageError(
                "a packed query: read with it what the memory gave for a sequence packed in the "
                "same way, at all its steps"
            )
        answer = self(query.data, [layer.map(lambda grid: grid.data) for layer in h])
        if isinstance(answer, Pyramid):
            return answer.map(lambda grid: query._replace(data=grid))
        return query._replace(data=answer)

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
