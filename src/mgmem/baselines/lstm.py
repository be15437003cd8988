"""A plain LSTM as a flat sequence core: everything it knows is in its hidden units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mgmem.baselines.core import check_sequence, pick_tensors, segments
from mgmem.errors import UsageError


class LSTMState(NamedTuple):
    """Hidden and cell values of every layer, each (batch, layers, hidden)."""

    hidden: Tensor
    cell: Tensor

    def detach(self) -> LSTMState:
        """The same values, cut off from the graph that made them."""
        return LSTMState(self.hidden.detach(), self.cell.detach())

    def tensors(self) -> dict[str, Tensor]:
        """All values by name, for a checkpoint."""
        return self._asdict()


class PlainLSTM(nn.Module):
    """`torch.nn.LSTM` with explicit state, resets and a forget bias of 1.

    input_size: numbers per step.
    hidden: units per layer, also the size of the output.
    layers: LSTM layers on top of each other.
    """

    def __init__(self, input_size: int, hidden: int, *, layers: int = 1) -> None:
        super().__init__()
        if min(input_size, hidden, layers) < 1:
            raise UsageError(
                f"PlainLSTM needs sizes of at least 1, got input_size={input_size}, "
                f"hidden={hidden}, layers={layers}."
            )
        self.input_size = input_size
        self.hidden = hidden
        self.layers = layers
        self.output_size = hidden
        self.lstm = nn.LSTM(input_size, hidden, layers)
        with torch.no_grad():
            for layer in range(layers):
                bias = getattr(self.lstm, f"bias_ih_l{layer}")
                bias.zero_()[hidden : 2 * hidden] = 1.0
                getattr(self.lstm, f"bias_hh_l{layer}").zero_()

    @property
    def cells(self) -> int:
        """Memory cells per sequence: one per unit and layer."""
        return self.hidden * self.layers

    def forward(
        self, x: Tensor, state: LSTMState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        """x (T, B, input_size), reset (T, B) bool or None -> (T, B, hidden), state."""
        check_sequence(x, self.input_size, reset)
        if state is None:
            state = self.initial_state(x.shape[1], x.device, x.dtype)
        hidden = state.hidden.transpose(0, 1).contiguous()
        cell = state.cell.transpose(0, 1).contiguous()
        outputs = []
        for start, stop, fresh in segments(x.shape[0], reset):
            if fresh is not None:
                hidden = hidden.masked_fill(fresh[None, :, None], 0.0)
                cell = cell.masked_fill(fresh[None, :, None], 0.0)
            y, (hidden, cell) = self.lstm(x[start:stop], (hidden, cell))
            outputs.append(y)
        y = torch.cat(outputs) if outputs else x.new_zeros(0, x.shape[1], self.hidden)
        return y, LSTMState(hidden.transpose(0, 1), cell.transpose(0, 1))

    def step(self, x: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """One step: x (B, input_size) -> (B, hidden), state."""
        y, state = self(x.unsqueeze(0), state)
        return y.squeeze(0), state

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> LSTMState:
        """All zeros, on the weights' device and in their type unless told otherwise."""
        weight = next(self.lstm.parameters())
        zeros = torch.zeros(
            batch,
            self.layers,
            self.hidden,
            device=weight.device if device is None else device,
            dtype=weight.dtype if dtype is None else dtype,
        )
        return LSTMState(zeros, zeros.clone())

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> LSTMState:
        """Inverse of `LSTMState.tensors`."""
        return LSTMState(**pick_tensors(tensors, LSTMState._fields))

    @staticmethod
    def count_parameters(
        input_size: int, output_size: int | None = None, *, hidden: int, layers: int = 1
    ) -> int:
        """Parameters without building; with `output_size`, including a linear layer to it."""
        first = 4 * hidden * (input_size + hidden + 2)
        further = (layers - 1) * 4 * hidden * (2 * hidden + 2)
        return first + further + (hidden + 1) * (output_size or 0)
