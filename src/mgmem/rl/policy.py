"""Policies: networks from what is seen to the chances of four actions and a value.

All are called alike, on whole sequences:

    logits (T, B, 4), values (T, B), state = policy(seen, inputs, state, reset)

seen: (T, B, channels, window, window), what a sight handed out; inputs: (T, B, 4, m, m), the
observation; state: what the policy itself remembers (None for most); reset: (T, B) bool, True
where a walk begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mgmem.baselines.lstm import LSTMState, PlainLSTM
from mgmem.errors import UsageError
from mgmem.nn.conv import MultigridCNN
from mgmem.spec import LayerSpec, as_mesh
from mgmem.tasks.world import MOVES

State = LSTMState | None
Decision = tuple[Tensor, Tensor, State]


class Policy(nn.Module):
    """A network that decides; most remember nothing."""

    def forward(self, seen: Tensor, inputs: Tensor, state: State, reset: Tensor) -> Decision:
        """Logits (T, B, 4), values (T, B) and the state to go on from."""
        raise NotImplementedError

    def initial_state(self, batch: int) -> State:
        """What it remembers before the first step."""
        return None

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> State:
        """The inverse of ``state.tensors()``."""
        return None


class Heads(nn.Module):
    """Action and value from features (..., width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.action = nn.Linear(width, len(MOVES))
        self.value = nn.Linear(width, 1)
        # All actions are equally likely at first, and nothing is promised.
        nn.init.orthogonal_(self.action.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)
        nn.init.zeros_(self.action.bias)
        nn.init.zeros_(self.value.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., 4) and values (...)."""
        return self.action(features), self.value(features).squeeze(-1)


class ReaderPolicy(Policy):
    """Reads a memory, or a map: a multigrid CNN over the window around the agent.

    Its query is the observation of the moment, which joins what was read before the heads.

    channels: those of the window. window: its side, 3 * 2**j. spec: the network's mesh, which
    ends on level 0. width: features before the heads. view: side of the observation.
    """

    def __init__(
        self,
        channels: int,
        window: int = 12,
        spec: str = "1-2:16 0-1:24 0:32",
        width: int = 128,
        view: int = 3,
    ) -> None:
        super().__init__()
        level = round(math.log2(window / 3)) if window >= 3 else -1
        mesh = as_mesh(spec)
        if level < 0 or window != 3 * 2**level or mesh[-1].highest != 0:
            raise UsageError(
                f"a window of {window} read by {spec!r}: give a side of 3, 6, 12, ... and a mesh "
                "that ends on level 0"
            )
        self.reader = MultigridCNN(LayerSpec(level, level, channels), mesh, final_relu=True)
        self.join = nn.Linear(math.prod(self.reader.output_shape) + 4 * view * view, width)
        self.heads = Heads(width)

    def forward(self, seen: Tensor, inputs: Tensor, state: State, reset: Tensor) -> Decision:
        """As all policies; it remembers nothing."""
        read = self.reader(seen.flatten(0, 1).float()).finest.flatten(1)
        features = torch.cat([read, inputs.flatten(0, 1).flatten(1)], 1)
        logits, values = self.heads(torch.relu(self.join(features)))
        leading = inputs.shape[:2]
        return logits.unflatten(0, leading), values.unflatten(0, leading), None


class ReactivePolicy(Policy):
    """Sees the walls around it and nothing else: neither a memory nor where it is."""

    def __init__(self, width: int = 128, view: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(view * view, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.heads = Heads(width)

    def forward(self, seen: Tensor, inputs: Tensor, state: State, reset: Tensor) -> Decision:
        """As all policies; it remembers nothing."""
        logits, values = self.heads(self.layers(inputs[:, :, 1].flatten(2)))
        return logits, values, None


class LSTMPolicy(Policy):
    """Remembers in the units of an LSTM, and learns to by reinforcement alone."""

    def __init__(self, hidden: int, view: int = 3) -> None:
        super().__init__()
        self.memory = PlainLSTM(4 * view * view, hidden)
        self.heads = Heads(hidden)

    def forward(self, seen: Tensor, inputs: Tensor, state: State, reset: Tensor) -> Decision:
        """As all policies."""
        features, state = self.memory(inputs.flatten(2), state, reset)
        logits, values = self.heads(features)
        return logits, values, state

    def initial_state(self, batch: int) -> State:
        """Zeros."""
        return self.memory.initial_state(batch)

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> State:
        """The inverse of ``state.tensors()``."""
        return self.memory.state_from_tensors(tensors) if tensors else None

    @staticmethod
    def hidden_for(parameters: int, view: int = 3) -> int:
        """Units with which it has as nearly as possible so many parameters."""

        def count(hidden: int) -> int:
            return PlainLSTM.count_parameters(4 * view * view, len(MOVES) + 1, hidden=hidden)

        return min(range(1, 2048), key=lambda hidden: abs(count(hidden) - parameters))


def select(state: State, which: Tensor) -> State:
    """What a policy remembers of some of its walks."""
    return None if state is None else LSTMState(*(part[which] for part in state))
