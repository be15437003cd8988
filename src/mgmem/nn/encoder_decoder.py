"""Sequence to sequence: a decoder that starts from a copy of the encoder's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.nn.conv import MultigridCNN
from mgmem.nn.fit import Fit, fitted
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, as_mesh


class EncoderDecoder(nn.Module):
    """Two memories of one mesh; the decoder's state begins as the encoder's, layer by layer.

    The decoder's deepest hidden state leads through an MG-conv ``tail`` to the outputs. Arguments
    as for ``MultigridMemory``; ``head`` follows the tail, such as a linear layer.
    """

    def __init__(
        self,
        input: int | str | LayerSpec,
        spec: str | MeshSpec,
        tail: str | MeshSpec,
        base: Sequence[int] = (3, 3),
        *,
        head: nn.Module | None = None,
        fit: Fit = "as is",
        norm: bool = False,
        residual: bool = True,
        final_relu: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        spec, tail = as_mesh(spec), as_mesh(tail)
        both: dict[str, Any] = {"norm": norm, "residual": residual}
        self.encoder = MultigridMemory(input, spec, base, **both, **options)
        if norm:
            # What the encoder's last layer puts out, nobody reads: only its state is handed over.
            self.encoder.norms[-1] = nn.Identity()
        self.decoder = MultigridMemory(input, spec, base, **both, **options)
        like_memory = {key: options[key] for key in ("kernel", "device", "dtype") if key in options}
        self.tail = MultigridCNN(spec[-1], tail, base, final_relu=final_relu, **both, **like_memory)
        self.head = head or nn.Identity()
        self.fit = fit

    def forward(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        queries: Sequence[Tensor],
        times: Tensor | None = None,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], MemoryState]:
        """Encode ``inputs``, then decode one output per step of ``queries[0]``.

        Args:
            inputs: (time, batch, channels, *space).
            state: the encoder's, to go on from, or None.
            queries: one tensor (outputs, batch, channels, *space), the decoder's inputs: zeros
                where it only has to go on.
            times: not used: all outputs follow the last input.
            reset: (time, batch) bool; lengths: (batch,); see ``MultigridMemory.forward``.

        Returns:
            one tensor (outputs, batch, *output) in a tuple; and the encoder's state.
        """
        if len(queries) != 1:
            raise UsageError(f"{len(queries)} query tensors; a decoder has one output sequence")
        _, state = self.encoder(self._fitted(inputs), state, lengths=lengths, reset=reset)
        h, _ = self.decoder(self._fitted(queries[0]), state)
        deepest, leading = h[-1], queries[0].shape[:2]
        outputs = self.tail(deepest.map(lambda grid: grid.flatten(0, 1))).finest
        return (self.head(outputs.unflatten(0, leading)),), state

    def _fitted(self, x: Tensor) -> Tensor | Pyramid:
        return fitted(x, self.encoder.input, self.encoder.base, self.fit)

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> MemoryState:
        """An empty encoder memory for ``batch`` sequences."""
        return self.encoder.initial_state(batch, device, dtype)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> MemoryState:
        """The inverse of ``state.tensors()``."""
        return self.encoder.state_from_tensors(tensors)

    @property
    def cells(self) -> int:
        """Memory cells per sequence: the decoder's are the encoder's, handed over."""
        return self.encoder.cells
