"""The differentiable neural computer: an LSTM controller with an addressable memory beside it.

Equations of one step, with x the input, r the vectors read in the step before:

    h, c = LSTM([x, r], h, c)
    xi   = W_xi h + b                     what to write where, what to look for
    memory, r = access(xi, memory)        see `dnc_addressing`
    y    = W_y h + W_r r + b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mgmem.baselines.core import check_sequence, pick_tensors, segments
from mgmem.baselines.dnc_addressing import (
    EPSILON,
    MemoryState,
    access,
    empty_memory,
    interface_size,
    parse_interface,
)
from mgmem.errors import UsageError


class DNCState(NamedTuple):
    """Controller values, each (B, hidden), and the memory with its bookkeeping."""

    hidden: Tensor
    cell: Tensor
    memory: MemoryState

    def detach(self) -> DNCState:
        """The same values, cut off from the graph that made them."""
        memory = MemoryState(*(value.detach() for value in self.memory))
        return DNCState(self.hidden.detach(), self.cell.detach(), memory)

    def tensors(self) -> dict[str, Tensor]:
        """All values by name, for a checkpoint."""
        return {"hidden": self.hidden, "cell": self.cell, **self.memory._asdict()}


class DNCTrace(NamedTuple):
    """The memory after every step, for pictures of what is stored where."""

    memory: Tensor  # (T, B, slots, width)
    usage: Tensor  # (T, B, slots)
    write_weights: Tensor  # (T, B, slots)
    read_weights: Tensor  # (T, B, read_heads, slots)


class DNC(nn.Module):
    """Differentiable neural computer of Graves et al. (2016), with one write head.

    input_size: numbers per step.
    hidden: units of the LSTM controller.
    slots, width: the memory is `slots` vectors of `width` numbers.
    read_heads: vectors read per step.
    output_size: numbers per step coming out, W_y h + W_r r. None hands out [h, r] itself, of size
        hidden + read_heads * width, for a linear layer elsewhere: the same function.
    clip: bound on the controller's cell and on the output, None for none. The controller's own
        output needs none, a tanh bounds it already.
    epsilon: keeps the cosine and the allocation finite, see `dnc_addressing`.

    Time and bytes per step grow with slots squared: the temporal links are a dense matrix.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int,
        *,
        slots: int = 500,
        width: int = 16,
        read_heads: int = 4,
        output_size: int | None = None,
        clip: float | None = 20.0,
        epsilon: float = EPSILON,
    ) -> None:
        super().__init__()
        if min(input_size, hidden, slots, width, read_heads) < 1:
            raise UsageError(
                f"DNC needs sizes of at least 1, got input_size={input_size}, hidden={hidden}, "
                f"slots={slots}, width={width}, read_heads={read_heads}."
            )
        self.input_size = input_size
        self.hidden = hidden
        self.slots = slots
        self.width = width
        self.read_heads = read_heads
        self.clip = clip
        self.epsilon = epsilon
        read_size = read_heads * width
        self.output_size = hidden + read_size if output_size is None else output_size
        self.from_input = nn.Linear(input_size, 4 * hidden)
        self.from_past = nn.Linear(hidden + read_size, 4 * hidden, bias=False)
        self.to_interface = nn.Linear(hidden, interface_size(width, read_heads))
        if output_size is None:
            self.to_output = self.reads_to_output = None
        else:
            self.to_output = nn.Linear(hidden, output_size)
            self.reads_to_output = nn.Linear(read_size, output_size, bias=False)
        self.reset_parameters()

    @property
    def cells(self) -> int:
        """Memory cells per sequence: slots x width."""
        return self.slots * self.width

    def reset_parameters(self) -> None:
        """Uniform weights by the size of each layer's whole input, zero biases, forget bias 1."""
        read_size = self.read_heads * self.width
        gates = self.input_size + self.hidden + read_size
        fan_ins = [(self.from_input, gates), (self.from_past, gates)]
        fan_ins.append((self.to_interface, self.hidden))
        if self.to_output is not None and self.reads_to_output is not None:
            fan_ins.append((self.to_output, self.hidden + read_size))
            fan_ins.append((self.reads_to_output, self.hidden + read_size))
        for layer, fan_in in fan_ins:
            nn.init.uniform_(layer.weight, -(fan_in**-0.5), fan_in**-0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.from_input.bias[self.hidden : 2 * self.hidden] = 1.0

    def forward(
        self, x: Tensor, state: DNCState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, DNCState]:
        """x (T, B, input_size), reset (T, B) bool or None -> (T, B, output_size), state."""
        check_sequence(x, self.input_size, reset)
        if state is None:
            state = self.initial_state(x.shape[1], x.device, x.dtype)
        hidden, reads = [], []
        for after in self._unroll(x, state, reset):
            hidden.append(after.hidden)
            reads.append(after.memory.reads)
            state = after
        if not hidden:
            return x.new_zeros(0, x.shape[1], self.output_size), state
        return self._output(torch.stack(hidden), torch.stack(reads).flatten(2)), state

    def step(self, x: Tensor, state: DNCState | None = None) -> tuple[Tensor, DNCState]:
        """One step: x (B, input_size) -> (B, output_size), state."""
        y, state = self(x.unsqueeze(0), state)
        return y.squeeze(0), state

    @torch.no_grad()
    def trace(
        self, x: Tensor, state: DNCState | None = None, reset: Tensor | None = None
    ) -> DNCTrace:
        """Run x (T, B, input_size), T >= 1, and keep the memory after every step."""
        check_sequence(x, self.input_size, reset)
        if x.shape[0] == 0:
            raise UsageError("A trace needs at least one step, got x with none.")
        if state is None:
            state = self.initial_state(x.shape[1], x.device, x.dtype)
        moments = [_moment(after.memory) for after in self._unroll(x, state, reset)]
        return DNCTrace(*(torch.stack(values) for values in zip(*moments, strict=True)))

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> DNCState:
        """All zeros, on the weights' device and in their type unless told otherwise."""
        weight = self.to_interface.weight
        device = weight.device if device is None else torch.device(device)
        dtype = weight.dtype if dtype is None else dtype
        zeros = torch.zeros(batch, self.hidden, device=device, dtype=dtype)
        memory = empty_memory(batch, self.slots, self.width, self.read_heads, device, dtype)
        return DNCState(zeros, zeros.clone(), memory)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> DNCState:
        """Inverse of `DNCState.tensors`."""
        picked = pick_tensors(tensors, ("hidden", "cell", *MemoryState._fields))
        return DNCState(picked.pop("hidden"), picked.pop("cell"), MemoryState(**picked))

    @staticmethod
    def count_parameters(
        input_size: int,
        output_size: int | None = None,
        *,
        hidden: int,
        width: int = 16,
        read_heads: int = 4,
    ) -> int:
        """Parameters without building; the number of slots does not matter.

        With `output_size`, including the layer to it, wherever that lives.
        """
        read_size = read_heads * width
        gates = 4 * hidden * (input_size + hidden + read_size + 1)
        interface = (hidden + 1) * interface_size(width, read_heads)
        return gates + interface + (hidden + read_size + 1) * (output_size or 0)

    def _unroll(self, x: Tensor, state: DNCState, reset: Tensor | None) -> Iterator[DNCState]:
        """The state after each step, one at a time: a link matrix is too large to keep T of."""
        from_input = self.from_input(x)
        for start, stop, fresh in segments(x.shape[0], reset):
            if fresh is not None:
                state = _cleared(state, fresh)
            for t in range(start, stop):
                state = self._advance(from_input[t], state)
                yield state

    def _advance(self, from_input: Tensor, state: DNCState) -> DNCState:
        """One step, given the input's share of the gates (B, 4 * hidden)."""
        past = torch.cat([state.hidden, state.memory.reads.flatten(1)], dim=1)
        gates = from_input + self.from_past(past)
        squashed, candidate = gates.split([3 * self.hidden, self.hidden], dim=1)
        into, forget, out = squashed.sigmoid().chunk(3, dim=1)
        cell = torch.addcmul(forget * state.cell, into, candidate.tanh())
        cell = self._clipped(cell)
        hidden = out * cell.tanh()
        ask = parse_interface(self.to_interface(hidden), self.width, self.read_heads)
        return DNCState(hidden, cell, access(ask, state.memory, self.epsilon))

    def _output(self, hidden: Tensor, reads: Tensor) -> Tensor:
        """hidden (..., hidden), reads (..., read_heads * width) -> (..., output_size)."""
        if self.to_output is None or self.reads_to_output is None:
            return torch.cat([hidden, reads], dim=-1)
        return self._clipped(self.to_output(hidden) + self.reads_to_output(reads))

    def _clipped(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp(-self.clip, self.clip)


def _moment(memory: MemoryState) -> tuple[Tensor, ...]:
    """What a trace keeps of one step; the links, the bulk of it, are let go."""
    return tuple(getattr(memory, field) for field in DNCTrace._fields)


def _cleared(state: DNCState, fresh: Tensor) -> DNCState:
    """The state with the sequences marked in fresh (B,) back at their zero start."""

    def clear(value: Tensor) -> Tensor:
        return value.masked_fill(fresh.view(-1, *[1] * (value.ndim - 1)), 0.0)

    memory = MemoryState(*(clear(value) for value in state.memory))
    return DNCState(clear(state.hidden), clear(state.cell), memory)
