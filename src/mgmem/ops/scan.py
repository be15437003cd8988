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
    flat = inputs.map(lambda grid: channels_last(grid.flatten(0, 1)))
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
        # Nothing else reads the input's share: the gates are opened in its place.
        opened = gates.detach()
        with torch.autocast(gates.device.type, enabled=False):
            for t in range(time):
                old_h, old_c = _emptied(hs[t], reset, t), _emptied(cs[t], reset, t)
                opened[t].add_(convolve(old_h, weight))
                _open_gates(opened[t], old_c, peephole, hs[t + 1], cs[t + 1])
                if active is not None:
                    hs[t + 1] = torch.where(active[t], hs[t + 1], old_h)
                    cs[t + 1] = torch.where(active[t], cs[t + 1], old_c)
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
        d_h, d_c = channels_last(d_h), channels_last(d_c)
        transposed = F.conv_transpose1d if weight.dim() == 3 else F.conv_transpose2d
        with torch.autocast(hs.device.type, enabled=False):
            for t in reversed(range(opened.shape[0])):
                into_h, into_c = d_h + d_outputs[t], d_c
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
    gates: Tensor, c: Tensor, peephole: Tensor | None, new_h: Tensor, new_c: Tensor
) -> None:
    """One step: opens ``gates`` i, f, g, o, and writes the new h and c."""
    i, f, g, o = gates.chunk(4, 1)
    if peephole is not None:
        i.addcmul_(peephole[0], c)
        f.addcmul_(peephole[1], c)
    squashed, closed_o = _tanh(g), None if peephole is None else o.clone()
    # All at once: of a few channels out of many, one would be computed after another.
    gates.sigmoid_()
    g.copy_(squashed)
    torch.addcmul(f * c, i, g, out=new_c)
    if peephole is not None and closed_o is not None:
        o.copy_(closed_o.addcmul_(peephole[2], new_c).sigmoid_())
    torch.mul(o, _tanh(new_c), out=new_h)


def _tanh(x: Tensor) -> Tensor:
    """PyTorch's own takes eight times as long as its sigmoid on CPU."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return x.tanh()
    return (2 * x).sigmoid_().mul_(2).sub_(1)


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
    by_sigmoid = torch.ops.aten.sigmoid_backward.grad_input
    by_tanh = torch.ops.aten.tanh_backward
    squashed = _tanh(new_c)
    by_sigmoid(d_h * squashed, o, grad_input=d_o)
    d_c = d_c + by_tanh(d_h * o, squashed)
    if peephole is not None:
        d_c.addcmul_(d_o, peephole[2])
    by_sigmoid(d_c * g, i, grad_input=d_i)
    by_sigmoid(d_c * old_c, f, grad_input=d_f)
    by_tanh.grad_input(d_c * i, g, grad_input=d_g)
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
