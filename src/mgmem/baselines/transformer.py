"""A small causal Transformer as a flat sequence core: it keeps its whole history and looks back.

The state is the explicit cache of keys and values, so one step at a time gives the same numbers as
a whole sequence. Memory grows with every step, which is what the other memories avoid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem.baselines.core import check_sequence, pick_tensors
from mgmem.errors import UsageError


class TransformerState(NamedTuple):
    """What every layer has seen: S past steps, of which each sequence may look at its last `age`.

    keys, values: (B, layers, heads, S, hidden / heads); age: (B,) int64, steps since the reset.
    """

    keys: Tensor
    values: Tensor
    age: Tensor

    def detach(self) -> TransformerState:
        """The same values, cut off from the graph that made them."""
        return TransformerState(self.keys.detach(), self.values.detach(), self.age)

    def tensors(self) -> dict[str, Tensor]:
        """All values by name, for a checkpoint."""
        return self._asdict()


class CausalTransformer(nn.Module):
    """Pre-norm Transformer that attends to every step since the last reset.

    input_size: numbers per step.
    hidden: width of the residual stream, also the size of the output.
    layers, heads: attention layers, and heads in each; heads has to divide hidden.
    max_history: longest episode, in steps since the reset; going over it is a UsageError.
    positions: "rotary" turns queries and keys by their time, "learned" adds a vector per step of
        the episode, max_history of them.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int,
        *,
        layers: int = 2,
        heads: int = 4,
        max_history: int = 1024,
        positions: Literal["rotary", "learned"] = "rotary",
    ) -> None:
        super().__init__()
        _check_sizes(input_size, hidden, layers, heads, max_history, positions)
        self.input_size = input_size
        self.hidden = hidden
        self.layers = layers
        self.heads = heads
        self.max_history = max_history
        self.output_size = hidden
        self.embed = nn.Linear(input_size, hidden)
        self.blocks = nn.ModuleList(_Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.places: nn.Parameter | None = None
        if positions == "learned":
            self.places = nn.Parameter(0.02 * torch.randn(max_history, hidden))

    @property
    def cells(self) -> int:
        """Numbers per sequence that a full history holds: keys and values of every layer."""
        return 2 * self.layers * self.hidden * self.max_history

    def forward(
        self, x: Tensor, state: TransformerState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, TransformerState]:
        """x (T, B, input_size), reset (T, B) bool or None -> (T, B, hidden), state."""
        check_sequence(x, self.input_size, reset)
        if state is None:
            state = self.initial_state(x.shape[1], x.device, x.dtype)
        if x.shape[0] == 0:
            return x.new_zeros(0, x.shape[1], self.hidden), state
        place = _places(x.shape[0], state.age, reset)
        self._check_history(place)
        visible = _visible(place, state.keys.shape[3])
        y = self.embed(x.transpose(0, 1))
        turn = None
        if self.places is None:
            turn = _rotation(place, self.hidden // self.heads, y.dtype)
        else:
            y = y + self.places[place]
        keys, values = [], []
        for index, block in enumerate(self.blocks):
            past = (state.keys[:, index], state.values[:, index])
            y, k, v = block(y, past, visible, turn)
            keys.append(k)
            values.append(v)
        age = place[:, -1] + 1
        after = _trimmed(torch.stack(keys, dim=1), torch.stack(values, dim=1), age)
        return self.norm(y).transpose(0, 1), after

    def step(
        self, x: Tensor, state: TransformerState | None = None
    ) -> tuple[Tensor, TransformerState]:
        """One step: x (B, input_size) -> (B, hidden), state."""
        y, state = self(x.unsqueeze(0), state)
        return y.squeeze(0), state

    def initial_state(
        self,
        batch: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> TransformerState:
        """An empty history, on the weights' device and in their type unless told otherwise."""
        weight = self.embed.weight
        device = weight.device if device is None else torch.device(device)
        empty = torch.zeros(
            batch,
            self.layers,
            self.heads,
            0,
            self.hidden // self.heads,
            device=device,
            dtype=weight.dtype if dtype is None else dtype,
        )
        age = torch.zeros(batch, dtype=torch.int64, device=device)
        return TransformerState(empty, empty.clone(), age)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> TransformerState:
        """Inverse of `TransformerState.tensors`."""
        return TransformerState(**pick_tensors(tensors, TransformerState._fields))

    @staticmethod
    def count_parameters(
        input_size: int,
        output_size: int | None = None,
        *,
        hidden: int,
        layers: int = 2,
        learned_positions: int = 0,
    ) -> int:
        """Parameters without building; with `output_size`, including a linear layer to it.

        learned_positions: max_history when positions are learned, 0 when they are rotary.
        """
        block = 12 * hidden * hidden + 13 * hidden
        ends = (input_size + 1) * hidden + 2 * hidden + learned_positions * hidden
        return ends + layers * block + (hidden + 1) * (output_size or 0)

    def _check_history(self, place: Tensor) -> None:
        # The values are looked at only when there are values: not while a graph is exported.
        if torch.compiler.is_compiling():
            return
        longest = int(place.max()) + 1
        if longest > self.max_history:
            raise UsageError(
                f"The history has grown to {longest} steps since the last reset, but this "
                f"Transformer was built with max_history={self.max_history}; build it with a "
                "larger one, or reset between episodes."
            )


class _Block(nn.Module):
    """Attention over past and present, then two layers for each step on its own."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(hidden)
        self.to_qkv = nn.Linear(hidden, 3 * hidden)
        self.from_heads = nn.Linear(hidden, hidden)
        self.norm_mlp = nn.LayerNorm(hidden)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)

    def forward(
        self,
        y: Tensor,
        past: tuple[Tensor, Tensor],
        visible: Tensor,
        turn: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """y (B, T, hidden) -> y, and keys and values of past and present (B, heads, S + T, d)."""
        batch, steps, hidden = y.shape
        qkv = self.to_qkv(self.norm_attention(y))
        # (3, B, heads, T, d)
        q, k, v = qkv.view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if turn is not None:
            q, k = _rotate(q, turn), _rotate(k, turn)
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        y = y + self.from_heads(seen.transpose(1, 2).reshape(batch, steps, hidden))
        y = y + self.narrow(F.gelu(self.widen(self.norm_mlp(y))))
        return y, k, v


def _trimmed(keys: Tensor, values: Tensor, age: Tensor) -> TransformerState:
    """The state without the steps that no sequence may look at any more."""
    if torch.compiler.is_compiling():  # an exported graph has fixed sizes and keeps them all
        return TransformerState(keys, values, age)
    kept = int(age.max())
    return TransformerState(keys[:, :, :, -kept:], values[:, :, :, -kept:], age)


def _places(steps: int, age: Tensor, reset: Tensor | None) -> Tensor:
    """How many steps of its episode each sequence has behind it: (B, T), 0 right after a reset."""
    t = torch.arange(steps, device=age.device)
    place = age.unsqueeze(1) + t
    if reset is None:
        return place
    last_reset = torch.where(reset.transpose(0, 1), t, -1).cummax(dim=1).values
    return torch.where(last_reset >= 0, t - last_reset, place)


def _visible(place: Tensor, past: int) -> Tensor:
    """Which of the past + T steps each of the T steps may look at: (B, 1, T, past + T) bool."""
    steps = place.shape[1]
    now = past + torch.arange(steps, device=place.device)
    back = now.unsqueeze(1) - torch.arange(past + steps, device=place.device)
    return ((back >= 0) & (back <= place.unsqueeze(2))).unsqueeze(1)


def _rotation(place: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every step's angles: (B, 1, T, size / 2) each, frequencies 1 to 1e-4."""
    half = size // 2
    exponents = torch.arange(half, device=place.device, dtype=torch.float64) / half
    angles = place.unsqueeze(1).unsqueeze(3) * 10_000.0**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (x[i], x[i + half]) of (B, heads, T, d) by their step's angles."""
    cos, sin = turn
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def _check_sizes(
    input_size: int, hidden: int, layers: int, heads: int, max_history: int, positions: str
) -> None:
    if min(input_size, hidden, layers, heads, max_history) < 1:
        raise UsageError(
            f"CausalTransformer needs sizes of at least 1, got input_size={input_size}, "
            f"hidden={hidden}, layers={layers}, heads={heads}, max_history={max_history}."
        )
    if positions not in ("rotary", "learned"):
        raise UsageError(f'positions has to be "rotary" or "learned", got {positions!r}.')
    if hidden % (2 * heads):
        raise UsageError(
            f"hidden has to be a multiple of 2 * heads = {2 * heads}, got {hidden}: every head "
            "takes an equal, even share."
        )
