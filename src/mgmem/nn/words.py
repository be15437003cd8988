"""A memory for words: it reads one after another, and says a word where it is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import Model, at_times, each_reader
from mgmem.nn.conv import MultigridCNN
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.norms import Norm
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, as_mesh


class WordMemory(Model):
    """A 1D memory that grows from one position, and MG-conv layers back to one.

    Args:
        words: size of the vocabulary.
        spec: the memory's mesh, such as "0-1:24 0-2:32 0-3:28".
        tail: MG-conv layers from the memory's last layer to one position; the last of them, with
            a channel for each word, is added: "0-1:48" ends in "0:159". It comes down one level
            at a time, so that no grid is left unread.
        norm: between the memory's layers; "sequence" can not be used word by word.
        embedding: numbers that stand for a word; 0: words go in as they are, one-hot.
        options: further ones of ``MultigridMemory``, such as dropout.
    """

    def __init__(
        self,
        words: int,
        spec: str | MeshSpec,
        tail: str | MeshSpec,
        *,
        norm: Norm = "causal",
        embedding: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        if embedding < 0:
            raise UsageError(f"embedding {embedding}: give a size")
        base = (1,)
        self.words = words
        self.embedding = nn.Linear(words, embedding, bias=False) if embedding else None
        self.memory = MultigridMemory(embedding or words, spec, base, norm=norm, **options)
        whole = as_mesh(tail) + as_mesh(f"0:{words}")
        _check_all_read(self.memory.spec[-1], whole)
        self.tail = MultigridCNN(self.memory.spec[-1], whole, base)

    def forward(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        queries: Sequence[Tensor],
        times: Tensor,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], MemoryState]:
        """Read ``inputs``, and answer after some of its words.

        Args:
            inputs: (time, batch, words, 1), one-hot.
            state: to go on from, or None.
            queries: one (queries, batch, 0) tensor: all there is to know was said before.
            times: (queries,) or (queries, batch) int64, the step after which each is answered.
            reset: (time, batch) bool; lengths: (batch,); see ``MultigridMemory.forward``.

        Returns:
            one (queries, batch, words) tensor of logits in a tuple; and the state to go on.
        """
        each_reader(queries, 1)
        h, state = self.read(inputs, state, reset=reset, lengths=lengths)
        # The tail costs as much as several words: it runs where an answer is wanted only.
        return (self.say(h[-1].map(lambda grid: at_times(grid, times))),), state

    def read(
        self,
        inputs: Tensor,
        state: MemoryState | None = None,
        *,
        reset: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """Write words into the memory: every layer's hidden states over time, and the state."""
        if self.embedding is not None:
            inputs = self.embedding(inputs.transpose(-1, -2)).transpose(-1, -2)
        else:
            # Weights start as if all inputs had variance one, but all words but one are zero.
            inputs = inputs * math.sqrt(self.words)
        return self.memory(inputs, state, reset=reset, lengths=lengths)

    def say(self, deepest: Pyramid) -> Tensor:
        """Logits (queries, batch, words) from the deepest layer's hidden states there."""
        leading = deepest.finest.shape[:2]
        seen = deepest.map(lambda grid: grid.flatten(0, 1))
        return self.tail(seen).finest.flatten(1).unflatten(0, leading)

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> MemoryState:
        """An empty memory for ``batch`` stories."""
        return self.memory.initial_state(batch, device, dtype)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> MemoryState:
        """The inverse of ``state.tensors()``."""
        return self.memory.state_from_tensors(tensors)

    @property
    def cells(self) -> int:
        """Memory cells per story."""
        return self.memory.cells


def _check_all_read(deepest: LayerSpec, tail: MeshSpec) -> None:
    """An error if a grid is read by no layer above it: it would be written for nothing."""
    for below, layer in pairwise([deepest, *tail]):
        if below.highest > layer.highest + 1:
            raise UsageError(
                f"a tail layer {layer} does not reach level {below.highest} of {below} below it: "
                "come down one level at a time, such as 0-3:32 0-2:32 0-1:40 from level 4"
            )
