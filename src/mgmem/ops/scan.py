"""The same layers, layer-major: a whole sequence's input convolution at once.

Time recurrence never crosses layers, so only the recurrent convolution has to stay in the loop.
Its backward is written by hand: the recurrent weight gradient is one convolution over all time
steps together instead of a sum of one per step. Equal to ``reference`` up to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv1d_weight, conv2d_weight

from mgmem.ops import twice
from mgmem.ops.pieces import channels_last, conv_layer, convolve_level
from mgmem.ops.reference import LSTMWeights, convolve, recurrence
from mgmem.pyramid import Pyramid, gather

__all__ = ["conv_layer", "lstm_layer"]


def lstm_layer(
    inputs: Pyramid,
    hidden: Pyramid,
    cell: Pyramid,
    weights: LSTMWeights,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> tuple[Pyramid, Pyramid, Pyramid]:
    """MG-conv-LSTM over a sequence; arguments and results as in ``reference.lstm_layer``."""
    time, batch = inputs.grids[0].shape[:2]
    flat = inputs.map(lambda grid: grid.flatten(0, 1))
    masks = (_mask(reset, cell.finest), _mask(active, cell.finest))
    results = []
    for index, level in enumerate(hidden.levels):
        gates = convolve_level(flat, level, weights.input[index], weights.bias[index])
        peephole = weights.peephole[index] if weights.peephole is not None else None
        results.append(
            _Recurrence.apply(
                _Source(inputs, level, weights.input[index], weights.bias[index]),
                # Under autocast only the input convolution is narrow; the memory itself is not.
                gates.unflatten(0, (time, batch)).to(cell.finest.dtype),
                hidden.grids[index],
                cell.grids[index],
                weights.recurrent[index],
                peephole,
                *masks,
            )
        )
    outputs, last_hidden, last_cell = zip(*results, strict=True)
    return (
        Pyramid(hidden.lowest, outputs),
        Pyramid(hidden.lowest, last_hidden),
        Pyramid(hidden.lowest, last_cell),
    )


def _mask(flags: Tensor | None, like: Tensor) -> Tensor | None:
    """(time, batch) flags, each step's shaped to broadcast over (batch, channels, *space)."""
    return None if flags is None else flags.view(*flags.shape, *([1] * (like.dim() - 1)))


class _Source(NamedTuple):
    """What the input's share of a grid's gates is made of."""

    inputs: Pyramid
    level: int
    weight: Tensor
    bias: Tensor

    def gates(self) -> Tensor:
        """That share, (time, batch, 4·channels, *space)."""
        leading = self.inputs.finest.shape[:2]
        flat = self.inputs.map(lambda grid: grid.flatten(0, 1))
        return convolve(gather(flat, self.level), self.weight, self.bias).unflatten(0, leading)


class _Recurrence(torch.autograd.Function):
    """One grid's LSTM over all time steps, given the input's share of the gates.

    gates (time, batch, 4·channels, *space); h, c (batch, channels, *space); reset, active
    (time, batch, 1, ..) bool or None. Returns outputs (time, batch, channels, *space), h, c.
    From ``source`` the gates are computed once more where somebody wants gradients of gradients:
    to keep them for that would cost everybody memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        source: _Source,
        gates: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        peephole: Tensor | None,
        reset: Tensor | None,
        active: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        time = gates.shape[0]
        kept = (h, c, source.weight, source.bias, *source.inputs.grids)
        h, c = channels_last(h), channels_last(c)
        # Index t of these holds the state before step t and before that step's reset: the reset
        # must not reach the output of step t-1, which is the same place.
        hs = torch.empty((time + 1, *h.shape), dtype=h.dtype, device=h.device)
        hs = _like_slices(hs, h)
        cs = torch.empty_like(hs)
        hs[0], cs[0] = h, c
        opened = torch.empty_like(gates)
        with torch.autocast(gates.device.type, enabled=False):
            for t in range(time):
                old_h, old_c = _emptied(hs[t], reset, t), _emptied(cs[t], reset, t)
                z = gates[t] + convolve(old_h, weight)
                new_h, new_c = _open_gates(z, old_c, peephole, opened[t])
                if active is not None:
                    new_h = torch.where(active[t], new_h, old_h)
                    new_c = torch.where(active[t], new_c, old_c)
                hs[t + 1], cs[t + 1] = new_h, new_c
        outputs = hs[1:] if active is None else hs[1:].masked_fill(~active, 0)
        ctx.save_for_backward(opened, hs, cs, weight, peephole, reset, active, *kept)
        ctx.read = (source.inputs.lowest, source.level)
        return outputs, hs[time].clone(), cs[time].clone()

    @staticmethod
    def backward(
        ctx: Any, d_outputs: Tensor, d_h: Tensor, d_c: Tensor
    ) -> tuple[Tensor | None, ...]:
        if twice.wanted_again(pulls := (d_outputs, d_h, d_c)):
            return _differentiable_backward(ctx, pulls)
        opened, hs, cs, weight, peephole, reset, active, *_ = ctx.saved_tensors
        d_gates = torch.empty_like(opened)
        d_peephole = None if peephole is None else hs.new_zeros((3, *hs.shape[2:]))
        transposed = F.conv_transpose1d if weight.dim() == 3 else F.conv_transpose2d
        with torch.autocast(hs.device.type, enabled=False):
            for t in reversed(range(opened.shape[0])):
                into_h, into_c = d_outputs[t] + d_h, d_c
                if active is not None:
                    into_h, into_c = (d.masked_fill(~active[t], 0) for d in (into_h, into_c))
                old_c = _emptied(cs[t], reset, t)
                passed = _close_gates(
                    into_h, into_c, opened[t], old_c, cs[t + 1], peephole, d_gates[t], d_peephole
                )
                back = transposed(d_gates[t], weight, padding=weight.shape[-1] // 2)
                if active is not None:
                    back = back + d_h.masked_fill(active[t], 0)
                    passed = passed + d_c.masked_fill(active[t], 0)
                d_h, d_c = _emptied(back, reset, t), _emptied(passed, reset, t)
            old_hs = hs[:-1] if reset is None else hs[:-1].masked_fill(reset, 0)
            d_weight = _weight_gradient(old_hs, d_gates, weight)
        if d_peephole is not None:
            d_peephole = d_peephole.sum_to_size(peephole.shape)
        return None, d_gates, d_h, d_c, d_weight, d_peephole, None, None


def _differentiable_backward(ctx: Any, pulls: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """What ``_Recurrence.backward`` returns, by plain operations."""
    _, _, _, weight, peephole, reset, active, h, c, w_in, bias, *grids = ctx.saved_tensors
    lowest, level = ctx.read
    with torch.enable_grad():
        gates = _Source(Pyramid(lowest, tuple(grids)), level, w_in, bias).gates()
        tensors = [gates.to(c.dtype), h, c, weight, *([] if peephole is None else [peephole])]

    def compute(own: list[Tensor]) -> tuple[Tensor, ...]:
        gates, h, c, weight, *rest = own
        return recurrence(gates.unbind(), h, c, weight, rest[0] if rest else None, reset, active)

    wanted = ctx.needs_input_grad[1 : 1 + len(tensors)]
    found = twice.gradients(compute, tensors, wanted, pulls)
    return None, *found, *[None] * (7 - len(found))


def _emptied(state: Tensor, reset: Tensor | None, t: int) -> Tensor:
    """The state, or its gradient, with the sequences that start afresh at step t at zero."""
    return state if reset is None else state.masked_fill(reset[t], 0)


def _open_gates(
    z: Tensor, c: Tensor, peephole: Tensor | None, opened: Tensor
) -> tuple[Tensor, Tensor]:
    """h and c after one step; the opened gates i, f, g, o are written to ``opened``."""
    i, f, g, o = z.chunk(4, 1)
    if peephole is not None:
        i, f = i + peephole[0] * c, f + peephole[1] * c
    opened_i, opened_f, opened_g, opened_o = opened.chunk(4, 1)
    torch.sigmoid(i, out=opened_i)
    torch.sigmoid(f, out=opened_f)
    torch.tanh(g, out=opened_g)
    c = torch.addcmul(opened_f * c, opened_i, opened_g)
    if peephole is not None:
        o = o + peephole[2] * c
    torch.sigmoid(o, out=opened_o)
    return opened_o * c.tanh(), c


def _close_gates(
    d_h: Tensor,
    d_c: Tensor,
    opened: Tensor,
    old_c: Tensor,
    new_c: Tensor,
    peephole: Tensor | None,
    d_gates: Tensor,
    d_peephole: Tensor | None,
) -> Tensor:
    """Gradient of one step: fills ``d_gates``, adds to ``d_peephole``, returns that of old_c."""
    i, f, g, o = opened.chunk(4, 1)
    d_i, d_f, d_g, d_o = d_gates.chunk(4, 1)
    squashed = new_c.tanh()
    torch.mul(d_h * squashed, o * (1 - o), out=d_o)
    d_c = torch.addcmul(d_c, d_h * o, 1 - squashed * squashed)
    if peephole is not None:
        d_c = torch.addcmul(d_c, d_o, peephole[2])
    torch.mul(d_c * g, i * (1 - i), out=d_i)
    torch.mul(d_c * old_c, f * (1 - f), out=d_f)
    torch.mul(d_c * i, 1 - g * g, out=d_g)
    passed = d_c * f
    if peephole is not None and d_peephole is not None:
        passed = passed + peephole[0] * d_i + peephole[1] * d_f
        d_peephole[0] += (d_i * old_c).sum(0)
        d_peephole[1] += (d_f * old_c).sum(0)
        d_peephole[2] += (d_o * new_c).sum(0)
    return passed


def _weight_gradient(hs: Tensor, d_gates: Tensor, weight: Tensor) -> Tensor:
    """The recurrent weight's gradient, all time steps in one convolution."""
    gradient = conv1d_weight if weight.dim() == 3 else conv2d_weight
    return gradient(
        hs.flatten(0, 1), weight.shape, d_gates.flatten(0, 1), padding=weight.shape[-1] // 2
    )


def _like_slices(sequence: Tensor, grid: Tensor) -> Tensor:
    """(time, *grid.shape) storage whose slices are laid out in memory as ``grid`` is."""
    if grid.dim() != 4:
        return sequence
    flat = sequence.flatten(0, 1)
    return torch.empty_like(flat, memory_format=torch.channels_last).unflatten(
        0, (sequence.shape[0], grid.shape[0])
    )
