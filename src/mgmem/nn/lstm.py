"""The MG-conv-LSTM layer: memory cells on every grid of a pyramid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn.conv import check_kernel
from mgmem.nn.parameters import listed
from mgmem.nn.state import LayerState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, Peephole, grid_shape


class MultigridConvLSTM(nn.Module):
    """One layer of the memory; ``ops.reference`` has the equations.

    Weights start Glorot-uniform over input and recurrence together, biases at zero but the forget
    gate's, which starts at ``forget_bias``. Peepholes: "none", one weight per "channel" (memory
    size stays free of parameters) or one per "cell" (the paper's equations to the letter).
    """

    def __init__(
        self,
        below: LayerSpec,
        layer: LayerSpec,
        base: Sequence[int],
        *,
        kernel: int = 3,
        peephole: Peephole = "none",
        forget_bias: float = 1.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_kernel(kernel)
        if peephole not in ("none", "channel", "cell"):
            raise UsageError(f"peephole {peephole!r}: give 'none', 'channel' or 'cell'")
        self.layer, self.base, self.forget_bias = layer, tuple(base), forget_bias
        dims, channels, taps = len(self.base), layer.channels, [kernel] * len(self.base)
        self.input_weights, self.recurrent_weights = nn.ParameterList(), nn.ParameterList()
        self.biases = nn.ParameterList()
        self.peepholes = nn.ParameterList() if peephole != "none" else None
        for level in layer.levels:
            space = grid_shape(self.base, level) if peephole == "cell" else (1,) * dims
            for parameters, shape in (
                (self.input_weights, (4 * channels, below.channels_read_by(level), *taps)),
                (self.recurrent_weights, (4 * channels, channels, *taps)),
                (self.biases, (4 * channels,)),
                (self.peepholes, (3, channels, *space)),
            ):
                if parameters is not None:
                    empty = torch.empty(shape, device=device, dtype=dtype)
                    parameters.append(nn.Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start afresh."""
        channels = self.layer.channels
        groups = zip(self.input_weights, self.recurrent_weights, self.biases, strict=True)
        for input_weight, recurrent_weight, bias in groups:
            taps = input_weight[0, 0].numel()
            read = input_weight.shape[1]
            bound = math.sqrt(6 / ((read + channels + 4 * channels) * taps))
            nn.init.uniform_(input_weight, -bound, bound)
            nn.init.uniform_(recurrent_weight, -bound, bound)
            nn.init.zeros_(bias)
            nn.init.constant_(bias[channels : 2 * channels], self.forget_bias)
        for peephole in self.peepholes or ():
            nn.init.zeros_(peephole)

    @property
    def gate_weights(self) -> list[nn.Parameter]:
        """Kernels that stack the four gates, for optimisers that treat them apart."""
        return [*self.input_weights.parameters(), *self.recurrent_weights.parameters()]

    def forward(
        self,
        inputs: Pyramid,
        state: LayerState,
        reset: Tensor | None = None,
        active: Tensor | None = None,
    ) -> tuple[Pyramid, LayerState]:
        """Grids (time, batch, channels below, *space) to (time, batch, channels, *space).

        ``reset`` and ``active``: (time, batch) bool or None, as in ``ops.reference.lstm_layer``.
        """
        weights = ops.LSTMWeights(
            tuple(listed(self.input_weights)),
            tuple(listed(self.recurrent_weights)),
            tuple(listed(self.biases)),
            tuple(listed(self.peepholes)) if self.peepholes is not None else None,
        )
        outputs, h, c = ops.lstm_layer(inputs, state.h, state.c, weights, reset, active)
        return outputs, LayerState(h, c)

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> LayerState:
        """Zeros for h and c, grids (batch, channels, *space)."""
        weight = self.biases[0]

        def zeros(level: int) -> Tensor:
            return torch.zeros(
                (batch, self.layer.channels, *grid_shape(self.base, level)),
                device=device or weight.device,
                dtype=dtype or weight.dtype,
            )

        levels = self.layer.levels
        return LayerState(*(Pyramid(levels[0], tuple(map(zeros, levels))) for _ in "hc"))
