"""Sequence to sequence: a decoder that starts from a copy of the encoder's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import Model
from mgmem.nn.conv import MultigridCNN
from mgmem.nn.fit import Fit, fitted
from mgmem.nn.inputs import Flags, as_queries
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, Mesh, Peephole, as_mesh


class EncoderDecoder(Model):
    """Two memories of one mesh; the decoder's state begins as the encoder's, layer by layer.

    The decoder's deepest hidden state leads through an MG-conv ``tail`` to the outputs. Arguments
    as for ``MultigridMemory``; ``head`` follows the tail, such as a linear layer.
    """

    def __init__(
        self,
        input: int | str | LayerSpec,
        spec: Mesh,
        tail: Mesh,
        base: Sequence[int] = (3, 3),
        *,
        head: nn.Module | None = None,
        fit: Fit = "as is",
        kernel: int = 3,
        peephole: Peephole = "none",
        norm: bool = False,
        residual: bool = True,
        final_relu: bool = False,
        forget_bias: float = 1.0,
        checkpoint_every: int | None = None,
        check_finite: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        spec, tail = as_mesh(spec), as_mesh(tail)
        self.encoder, self.decoder = (
            MultigridMemory(
                input,
                spec,
                base,
                kernel=kernel,
                peephole=peephole,
                norm=norm,
                residual=residual,
                forget_bias=forget_bias,
                checkpoint_every=checkpoint_every,
                check_finite=check_finite,
                device=device,
                dtype=dtype,
            )
            for _ in range(2)
        )
        if norm:
            # What the encoder's last layer puts out, nobody reads: only its state is handed over.
            self.encoder.norms[-1] = nn.Identity()
        self.tail = MultigridCNN(
            spec[-1],
            tail,
            base,
            kernel=kernel,
            norm=norm,
            residual=residual,
            final_relu=final_relu,
            device=device,
            dtype=dtype,
        )
        self.head = head or nn.Identity()
        self.fit = fit

    def forward(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        queries: Tensor | Sequence[Tensor],
        times: Tensor | None = None,
        reset: Flags | None = None,
        lengths: Flags | None = None,
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
        queries = as_queries(queries)
        if len(queries) != 1:
            raise UsageError(f"{len(queries)} query tensors; a decoder has one output sequence")
        _, state = self.encoder(self._fitted(inputs), state, lengths=lengths, reset=reset)
        h, _ = self.decoder(self._fitted(queries[0]), state)
        deepest, leading = h[-1], queries[0].shape[:2]
        outputs = self.tail(deepest.map(lambda grid: grid.flatten(0, 1))).finest
        return (self.head(outputs.unflatten(0, leading)),), state

    def step(self, query: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        """Decode one output, going on from a state: the encoder's at first, then the one returned.

        query (batch, channels, *space); the output is (batch, *output). The same numbers as those
        of ``forward``, one at a time.
        """
        h, state = self.decoder.step(self._fitted(query), state)
        return self.head(self.tail(h[-1]).finest[None])[0], state

    def reset_parameters(self) -> None:
        """Start all weights afresh; a head that has parameters keeps them."""
        for part in (self.encoder, self.decoder, self.tail):
            part.reset_parameters()

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
