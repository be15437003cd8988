"""The definition: the paper's equations, one time step after another, in plain PyTorch.

Slow and obviously right. Every faster path must equal these two functions, outputs and gradients.

    H[j]  =  up(x[j-1]) ++ x[j] ++ down(x[j+1])          whichever exist, concatenated
    i     =  sigmoid(Wxi * H[j] + Whi * h' + Pi . c' + bi)
    f     =  sigmoid(Wxf * H[j] + Whf * h' + Pf . c' + bf)
    g     =     tanh(Wxg * H[j] + Whg * h' + bg)
    c     =  f . c' + i . g
    o     =  sigmoid(Wxo * H[j] + Who * h' + Po . c  + bo)
    h     =  o . tanh(c)

with h', c' the state of the same layer and level one step before. Gates are stacked i, f, g, o.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mgmem.pyramid import Pyramid, gather


class LSTMWeights(NamedTuple):
    """Parameters of one layer; each field holds one tensor per level, coarsest first."""

    input: tuple[Tensor, ...]
    """(4·channels, channels read, *kernel)"""
    recurrent: tuple[Tensor, ...]
    """(4·channels, channels, *kernel)"""
    bias: tuple[Tensor, ...]
    """(4·channels,)"""
    peephole: tuple[Tensor, ...] | None
    """(3, channels, 1, ..) or (3, channels, *space), for i, f and o; None: no peepholes"""


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Zero-padded convolution that keeps the size: (N, C, *space) in 1D or 2D, odd kernel."""
    conv = F.conv1d if x.dim() == 3 else F.conv2d
    return conv(x, weight, bias, padding=weight.shape[-1] // 2)


def conv_layer(
    inputs: Pyramid, weights: Sequence[Tensor], biases: Sequence[Tensor], lowest: int, relu: bool
) -> Pyramid:
    """MG-conv: grids (N, C, *space) to grids (N, channels, *space) on levels lowest, ...

    ``weights[i]`` (channels, channels read, *kernel) and ``biases[i]`` belong to ``lowest + i``.
    """
    grids = []
    for level, (weight, bias) in enumerate(zip(weights, biases, strict=True), lowest):
        y = convolve(gather(inputs, level), weight, bias)
        grids.append(y.relu() if relu else y)
    return Pyramid(lowest, tuple(grids))


def lstm_layer(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Pyramid, Pyramid, Pyramid]:
    """MG-conv-LSTM over a sequence.

    Args:
        inputs: grids (time, batch, C, *space) of the layer below.
        hidden: grids (batch, channels, *space), h before the first step; its levels are the
            layer's levels.
        cell: likewise c.
        weights: see LSTMWeights.
        reset: (time, batch) bool; True: h' = c' = 0 at that step.
        active: (time, batch) bool; False: the step leaves the state as it is and outputs zero.

    Returns:
        outputs (time, batch, channels, *space), and h and c after the last step.
    """
    steps = [inputs.map(itemgetter(t)) for t in range(inputs.grids[0].shape[0])]
    results = []
    for index, level in enumerate(hidden.levels):
        gates = [
            convolve(gather(step, level), weights.input[index], weights.bias[index])
            for step in steps
        ]
        peephole = None if weights.peephole is None else weights.peephole[index]
        h, c, recurrent = hidden.grids[index], cell.grids[index], weights.recurrent[index]
        results.append(recurrence(gates, h, c, recurrent, peephole, reset, active))
    outputs, last_hidden, last_cell = (
        Pyramid(hidden.lowest, grids) for grids in zip(*results, strict=True)
    )
    return outputs, last_hidden, last_cell


def recurrence(
    gates: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    weight: Tensor,
    peephole: Tensor | None = None,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One grid over a sequence, given the input's share of the gates at every step.

    gates: of each step (batch, 4·channels, *space); h, c (batch, channels, *space); ``weight`` the
    recurrent one. Returns outputs (time, batch, channels, *space), h and c.
    """
    outputs = []
    for t, from_input in enumerate(gates):
        if reset is not None:
            h, c = (torch.where(per_sequence(reset[t], s), 0.0, s) for s in (h, c))
        new_h, new_c = open_gates(from_input + convolve(h, weight), c, peephole)
        output = new_h
        if active is not None:
            alive = per_sequence(active[t], h)
            h, c = torch.where(alive, new_h, h), torch.where(alive, new_c, c)
            output = torch.where(alive, new_h, 0.0)
        else:
            h, c = new_h, new_c
        outputs.append(output)
    return torch.stack(outputs) if outputs else h.new_zeros((0, *h.shape)), h, c


def open_gates(gates: Tensor, c: Tensor, peephole: Tensor | None) -> tuple[Tensor, Tensor]:
    """h and c after one step of one grid."""
    i, f, g, o = gates.chunk(4, 1)
    if peephole is not None:
        for_i, for_f, for_o = peephole
        i, f = i + for_i * c, f + for_f * c
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    if peephole is not None:
        o = o + for_o * c
    return o.sigmoid() * c.tanh(), c


def per_sequence(flags: Tensor, like: Tensor) -> Tensor:
    """(batch,) flags shaped to broadcast over (batch, channels, *space)."""
    return flags.view(-1, *([1] * (like.dim() - 1)))
