"""A start at which every layer of a memory passes on what it is told.

Freshly drawn, each grid's hidden state hardly varies with the input, the deeper the less: by 0.004
at the finest grid of seven layers, where trained ones vary by 0.1 to 0.2. What hardly varies hardly
teaches. Input weights are scaled layer by layer until the states vary as they do when trained
(Mishkin & Matas 2016 do so for deep CNNs).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mgmem.nn.chain import summands
from mgmem.nn.inputs import Input
from mgmem.nn.memory import MultigridMemory

_ROUNDS = 4
_NEAR = 0.1
_STEP = 5.0


@torch.no_grad()
def vary(memory: MultigridMemory, inputs: Input, deviation: float = 0.1, first: int = 0) -> None:
    """Scale input weights from layer ``first`` on.

    inputs: (time, batch, channels, *space), typical ones. deviation: of each grid's hidden states
    over batch and the second half of time.
    """
    for index in range(first, len(memory.layers)):
        layer = memory.layers[index]
        for level, weight in enumerate(layer.input_weights):  # type: ignore[arg-type]
            for _ in range(_ROUNDS):
                now = max(_deviation(_outputs(memory, inputs, index, level)), 1e-6)
                factor = min(max(deviation / now, 1 / _STEP), _STEP)
                weight.mul_(factor)
                if abs(factor - 1) < _NEAR:
                    break


def _outputs(memory: MultigridMemory, inputs: Input, index: int, level: int) -> Tensor:
    """What a layer puts out on its level of that number, without what a residual adds."""
    h, _ = memory(inputs)
    own: Tensor = h[index].grids[level]
    if memory.residual and index >= 2 and index % 2 == 0:
        added = summands(h[index], h[index - 2], len(memory.base))[level]
        if added is not None:
            own = own.clone()
            own[:, :, : added.shape[2]] -= added
    return own


def _deviation(outputs: Tensor) -> float:
    late = outputs[len(outputs) // 2 :]
    return (late - late.mean((0, 1), keepdim=True)).pow(2).mean().sqrt().item()
