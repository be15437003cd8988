"""A flat sequence core as a model that answers queries, so that any task can train it.

A flat core (DNC, LSTM, Transformer) knows neither grids nor readers: it maps one vector per step
to another. Observation and query of a step go in side by side, and a linear layer per reader turns
what comes out into the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem.baselines.core import CoreState, SequenceCore
from mgmem.errors import UsageError
from mgmem.model import Model, at_times, each_reader

Shape = Sequence[int]


def flat_input_size(input_shape: Shape, query_shapes: Sequence[Shape]) -> int:
    """Numbers per step that `FlatModel` feeds its core: input, every query, one flag."""
    return math.prod(input_shape) + sum(math.prod(shape) for shape in query_shapes) + 1


def flat_output_size(answer_shapes: Sequence[Shape]) -> int:
    """Numbers per answer, over all readers."""
    return sum(math.prod(shape) for shape in answer_shapes)


class FlatModel(Model):
    """Gives a flat sequence core the query protocol.

    core: takes `(x (T, B, F), state, reset) -> (y (T, B, output_size), state)`, with F equal to
        `flat_input_size(input_shape, query_shapes)`.
    input_shape: one observation, without time and batch; query_shapes, answer_shapes: one per
        reader.
    reads: "during" and "within" ask while observing, at most one query per step; "after" asks one
        query after another once the last observation is in.

    The core sees [input, query of reader 1, .., query of reader n, flag] at every step. "during":
    the flag is 1 at the steps at which something is asked, otherwise flag and queries are 0.
    "after": T steps of observations with flag 0, then one step per query with flag 1 and no
    observation.

    Unlike a reader of a multigrid memory, which looks without touching, a flat core takes queries
    in as input: its state changes with what it is asked. That is inherent in these models; the
    answers to later queries, and the state handed back, depend on the queries before.
    """

    def __init__(
        self,
        core: SequenceCore,
        *,
        input_shape: Shape,
        query_shapes: Sequence[Shape],
        answer_shapes: Sequence[Shape],
        reads: Literal["during", "after", "within"],
    ) -> None:
        super().__init__()
        if reads not in ("during", "after", "within"):
            raise UsageError(f'reads has to be "during", "after" or "within", got {reads!r}.')
        if len(query_shapes) != len(answer_shapes):
            raise UsageError(
                f"Every reader has one query and one answer shape, got {len(query_shapes)} query "
                f"and {len(answer_shapes)} answer shapes."
            )
        self.input_shape = tuple(input_shape)
        self.query_shapes = tuple(tuple(shape) for shape in query_shapes)
        self.answer_shapes = tuple(tuple(shape) for shape in answer_shapes)
        self.reads = reads
        self.input_size = flat_input_size(input_shape, query_shapes)
        if core.input_size != self.input_size:
            raise UsageError(
                f"The core takes {core.input_size} numbers per step, but input {self.input_shape}, "
                f"queries {self.query_shapes} and a flag make {self.input_size}; build it with "
                "flat_input_size(input_shape, query_shapes)."
            )
        self.core = core
        self.heads = nn.ModuleList(
            nn.Linear(core.output_size, math.prod(shape)) for shape in self.answer_shapes
        )

    def forward(
        self,
        inputs: Tensor,
        state: CoreState | None = None,
        *,
        queries: Sequence[Tensor],
        times: Tensor,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], CoreState]:
        """Observe, and answer where asked.

        inputs: (T, B, *input_shape).
        queries: one (Q, B, *query_shape) per reader.
        times: (Q,) int64, non-decreasing: query q is asked after step times[q]; or (Q, B).
        reset: (T, B) bool or None: where True that sequence starts afresh before the step.
        lengths: (B,) or None. Answers before a sequence's end do not depend on what pads it; the
            state handed back does, and is not one to go on from.
        Returns one (Q, B, *answer_shape) per reader, and the state.
        """
        x = self.steps(inputs, queries, times)
        if reset is not None and x.shape[0] > reset.shape[0]:
            asking = reset.new_zeros(x.shape[0] - reset.shape[0], reset.shape[1])
            reset = torch.cat([reset, asking])
        y, state = self.core(x, state, reset)
        asked = y[inputs.shape[0] :] if self.reads == "after" else at_times(y, times)
        answers = tuple(
            head(asked).unflatten(-1, shape)
            for head, shape in zip(self.heads, self.answer_shapes, strict=True)
        )
        return answers, state

    def steps(self, inputs: Tensor, queries: Sequence[Tensor], times: Tensor) -> Tensor:
        """What the core sees: (T, B, input_size), or (T + Q, B, input_size) for "after"."""
        self._check(inputs, queries, times)
        steps, batch = inputs.shape[:2]
        asks = times.shape[0]
        observed = inputs.reshape(steps, batch, math.prod(self.input_shape))
        # Sizes are spelled out because "-1" is undefined for a call that asks nothing.
        parts = [
            query.reshape(asks, batch, math.prod(shape))
            for query, shape in zip(queries, self.query_shapes, strict=True)
        ]
        asking = torch.cat([*parts, inputs.new_ones(asks, batch, 1)], dim=2)
        seen, asked = observed.shape[2], asking.shape[2]
        if self.reads == "after":
            return torch.cat([F.pad(observed, (0, asked)), F.pad(asking, (seen, 0))])
        silence = inputs.new_zeros(steps, batch, asked)
        if times.dim() == 1:
            return torch.cat([observed, silence.index_copy(0, times, asking)], dim=2)
        places = (times, torch.arange(batch, device=times.device).expand_as(times))
        return torch.cat([observed, silence.index_put(places, asking)], dim=2)

    @property
    def cells(self) -> int:
        """Memory cells per sequence."""
        return self.core.cells

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> CoreState:
        """The state before the first step."""
        return self.core.initial_state(batch, device, dtype)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> CoreState:
        """The state whose `tensors()` these are."""
        return self.core.state_from_tensors(tensors)

    def _check(self, inputs: Tensor, queries: Sequence[Tensor], times: Tensor) -> None:
        """Raise UsageError for shapes or times that do not fit."""
        if inputs.ndim < 2 or tuple(inputs.shape[2:]) != self.input_shape:
            raise UsageError(
                f"inputs have to be (time, batch, {_listed(self.input_shape)}), "
                f"got {tuple(inputs.shape)}."
            )
        each_reader(queries, len(self.query_shapes))
        for query, shape in zip(queries, self.query_shapes, strict=True):
            wanted = (times.shape[0], inputs.shape[1], *shape)
            if tuple(query.shape) != wanted:
                raise UsageError(
                    f"For {times.shape[0]} times and a batch of {inputs.shape[1]} a query has to "
                    f"be {wanted}, got {tuple(query.shape)}."
                )
        # The values are looked at only when there are values: not while a graph is exported.
        if not torch.compiler.is_compiling():
            for column in times.T.tolist() if times.dim() == 2 else [times.tolist()]:
                self._check_times(column, inputs.shape[0])

    def _check_times(self, times: list[int], steps: int) -> None:
        if self.reads == "after":
            if any(time != steps - 1 for time in times):
                raise UsageError(
                    f'With reads="after" every query comes after the last step, {steps - 1}, '
                    f"got times {times}."
                )
            return
        if any(not 0 <= time < steps for time in times):
            raise UsageError(f"times have to lie in 0..{steps - 1}, got {times}.")
        # A query without numbers is the same however often it is asked.
        gap = 1 if any(map(math.prod, self.query_shapes)) else 0
        if any(later < earlier + gap for earlier, later in pairwise(times)):
            raise UsageError(
                "A flat model takes at most one query per step, in the order of time, got times "
                f'{times}; ask the rest in another pass, or use reads="after".'
            )


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)
