"""Addressing of the differentiable neural computer (Graves et al., Nature 538, 2016) as functions.

Every function is pure, works on a whole batch and on all heads at once, and follows the published
equations; the names in brackets are the paper's symbols. Letters in the shapes: B sequences in the
batch, N memory slots, W numbers per slot, R read heads.

Two things differ from the printed equations, both only to keep float32 finite: the cosine has an
`epsilon` under its square roots, and the running product of the allocation has every factor lifted
to at least `epsilon`. With `epsilon` going to zero both become the printed equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-6
_BLOCK_NUMBERS = 1 << 18  # 1 MB of float32, about a core's second-level cache


class Interface(NamedTuple):
    """What the controller asks of the memory in one step, each part already in its range."""

    read_keys: Tensor  # (B, R, W)             [k^r]
    read_strengths: Tensor  # (B, R)     >= 1  [beta^r]
    write_key: Tensor  # (B, 1, W)             [k^w]
    write_strength: Tensor  # (B, 1)     >= 1  [beta^w]
    erase: Tensor  # (B, W)          in (0, 1) [e]
    write: Tensor  # (B, W)                    [v]
    free_gates: Tensor  # (B, R)     in (0, 1) [f]
    allocation_gate: Tensor  # (B, 1) in (0, 1) [g^a]
    write_gate: Tensor  # (B, 1)     in (0, 1) [g^w]
    read_modes: Tensor  # (B, R, 3) sums to 1: backward, content, forward [pi]


class MemoryState(NamedTuple):
    """Everything the memory carries from one step to the next."""

    memory: Tensor  # (B, N, W)        [M]
    usage: Tensor  # (B, N)            [u]
    precedence: Tensor  # (B, N)       [p]
    link: Tensor  # (B, N, N)          [L]
    write_weights: Tensor  # (B, N)    [w^w]
    read_weights: Tensor  # (B, R, N)  [w^r]
    reads: Tensor  # (B, R, W)         [r]


def interface_size(width: int, read_heads: int) -> int:
    """Length of the interface vector: W*R + 3W + 5R + 3."""
    return width * read_heads + 3 * width + 5 * read_heads + 3


def parse_interface(vector: Tensor, width: int, read_heads: int) -> Interface:
    """Cut the raw interface vector (B, W*R + 3W + 5R + 3) in the published order."""
    w, r = width, read_heads
    batch = vector.shape[0]
    parts = vector.split([r * w, r, w, 1, w, w, r + 2, 3 * r], dim=-1)
    read_keys, read_strengths, write_key, write_strength, erase, write, gates, modes = parts
    # The three kinds of gate lie side by side, so that one sigmoid serves them all.
    free_gates, allocation_gate, write_gate = gates.sigmoid().split([r, 1, 1], dim=-1)
    return Interface(
        read_keys=read_keys.reshape(batch, r, w),
        read_strengths=oneplus(read_strengths),
        write_key=write_key.reshape(batch, 1, w),
        write_strength=oneplus(write_strength),
        erase=erase.sigmoid(),
        write=write,
        free_gates=free_gates,
        allocation_gate=allocation_gate,
        write_gate=write_gate,
        read_modes=modes.reshape(batch, r, 3).softmax(-1),
    )


def oneplus(x: Tensor) -> Tensor:
    """1 + log(1 + exp(x)): a strength that is never below 1."""
    return 1 + F.softplus(x)


def content_weights(
    memory: Tensor, keys: Tensor, strengths: Tensor, epsilon: float = EPSILON
) -> Tensor:
    """Softmax over the slots of strength times cosine(key, slot)  [C(M, k, beta)].

    memory (B, N, W), keys (B, K, W), strengths (B, K) -> (B, K, N).
    """
    scale = strengths * (keys.square().sum(-1) + epsilon).rsqrt()
    # (B, N, 1): scaling the slots costs no more than scaling the (B, K, N) products.
    slots = memory * (memory.square().sum(-1, keepdim=True) + epsilon).rsqrt()
    return torch.bmm(keys * scale.unsqueeze(-1), slots.transpose(1, 2)).softmax(-1)


def update_usage(
    usage: Tensor, write_weights: Tensor, read_weights: Tensor, free_gates: Tensor
) -> Tensor:
    """How much each slot is in use: written slots gain, slots freed after reading lose  [u].

    usage (B, N), previous write_weights (B, N), previous read_weights (B, R, N),
    free_gates (B, R) -> (B, N).
    """
    retention = (1 - free_gates.unsqueeze(-1) * read_weights).prod(dim=1)
    written = usage + (1 - usage) * write_weights
    # Weights may sum to 1 + 1e-7 in float32; without the clamp free space could turn negative.
    return (written * retention).clamp(0, 1)


def allocation_weights(usage: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Where to write next: the least used slots first  [a].

    usage (B, N) -> (B, N). Sorted by usage (slots of equal usage in their own order), slot j gets
    (1 - u_j) times the product of the usages before it.
    """
    ordered, order = torch.sort(usage, dim=-1, stable=True)
    # An exact 0 in a running product has no gradient through division, hence the lift.
    lifted = epsilon + (1 - epsilon) * ordered[:, :-1]
    before = F.pad(torch.cumprod(lifted, dim=-1), (1, 0), value=1.0)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ordered) * before)


def write_weighting(
    allocation: Tensor, content: Tensor, allocation_gate: Tensor, write_gate: Tensor
) -> Tensor:
    """Gate between fresh slots and looked-up slots  [w^w]; (B, N), (B, N), (B, 1), (B, 1)."""
    return write_gate * torch.lerp(content, allocation, allocation_gate)


def write_memory(memory: Tensor, weights: Tensor, erase: Tensor, write: Tensor) -> Tensor:
    """M (1 - w e^T) + w v^T; memory (B, N, W), weights (B, N), erase and write (B, W)."""
    change = write.unsqueeze(1) - memory * erase.unsqueeze(1)
    return torch.addcmul(memory, weights.unsqueeze(-1), change)


def update_precedence(precedence: Tensor, write_weights: Tensor) -> Tensor:
    """How much each slot was the last one written  [p]; (B, N), (B, N) -> (B, N)."""
    return (1 - write_weights.sum(-1, keepdim=True)) * precedence + write_weights


def update_link(link: Tensor, write_weights: Tensor, precedence: Tensor) -> Tensor:
    """L[i, j]: to what degree slot i was written right after slot j  [L].

    link (B, N, N), write_weights (B, N), previous precedence (B, N) -> (B, N, N).
    """
    column, row = write_weights.unsqueeze(2), write_weights.unsqueeze(1)
    new = ((1 - column) - row) * link + column * precedence.unsqueeze(1)
    return new - torch.diag_embed(torch.diagonal(new, dim1=1, dim2=2))


def follow_links(link: Tensor, read_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Where reading goes on in the order of writing, and against it  [f, b].

    link (B, N, N), previous read_weights (B, R, N) -> forward (B, R, N), backward (B, R, N).
    """
    return torch.bmm(read_weights, link.transpose(1, 2)), torch.bmm(read_weights, link)


def link_step(
    link: Tensor, write_weights: Tensor, precedence: Tensor, read_weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`update_link`, then `follow_links`, with as few passes over (B, N, N) as possible.

    Returns the new link, forward and backward weightings. Differentiable once.
    """
    if torch.compiler.is_compiling():  # a traced graph takes no buffers; its compiler fuses
        new = update_link(link, write_weights, precedence)
        return new, *follow_links(new, read_weights)
    if torch.is_grad_enabled():
        return _LinkStep.apply(link, write_weights, precedence, read_weights)
    return _run_link_step(link, write_weights, precedence, read_weights)


def read_weighting(backward: Tensor, content: Tensor, forward: Tensor, modes: Tensor) -> Tensor:
    """Mix the three ways of reading, each (B, R, N), by the modes (B, R, 3)  [w^r]."""
    back, look, onward = modes.split(1, dim=-1)
    return torch.addcmul(torch.addcmul(back * backward, look, content), onward, forward)


def empty_memory(
    batch: int, slots: int, width: int, read_heads: int, device: torch.device, dtype: torch.dtype
) -> MemoryState:
    """Nothing written, nothing in use, no head reading anywhere: all zeros."""

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(batch, *shape, device=device, dtype=dtype)

    return MemoryState(
        memory=zeros(slots, width),
        usage=zeros(slots),
        precedence=zeros(slots),
        link=zeros(slots, slots),
        write_weights=zeros(slots),
        read_weights=zeros(read_heads, slots),
        reads=zeros(read_heads, width),
    )


def access(ask: Interface, state: MemoryState, epsilon: float = EPSILON) -> MemoryState:
    """One step of the memory: free, allocate, write, link, read."""
    usage = update_usage(state.usage, state.write_weights, state.read_weights, ask.free_gates)
    looked_up = content_weights(state.memory, ask.write_key, ask.write_strength, epsilon)
    write_weights = write_weighting(
        allocation_weights(usage, epsilon), looked_up.squeeze(1), ask.allocation_gate,
        ask.write_gate,
    )  # fmt: skip
    memory = write_memory(state.memory, write_weights, ask.erase, ask.write)
    link, forward, backward = link_step(
        state.link, write_weights, state.precedence, state.read_weights
    )
    content = content_weights(memory, ask.read_keys, ask.read_strengths, epsilon)
    read_weights = read_weighting(backward, content, forward, ask.read_modes)
    return MemoryState(
        memory=memory,
        usage=usage,
        precedence=update_precedence(state.precedence, write_weights),
        link=link,
        write_weights=write_weights,
        read_weights=read_weights,
        reads=torch.bmm(read_weights, memory),
    )


def _blocks(link: Tensor) -> list[slice]:
    """Cut the batch so that a block's link matrices stay in a CPU core's cache between passes.

    The passes over a large batch would otherwise fetch its matrices from main memory every time.
    """
    batch, slots, _ = link.shape
    size = batch if link.is_cuda else max(1, _BLOCK_NUMBERS // slots**2)
    return [slice(start, start + size) for start in range(0, batch, size)]


def _decay(write_weights: Tensor, out: Tensor) -> Tensor:
    """1 - w[i] - w[j] as (B, N, N): what is left of each link after a write."""
    return torch.sub((1 - write_weights).unsqueeze(2), write_weights.unsqueeze(1), out=out)


def _run_link_step(
    link: Tensor, write_weights: Tensor, precedence: Tensor, read_weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`link_step` in place block by block; for use where autograd does not look."""
    new = torch.empty_like(link)
    forward, backward = torch.empty_like(read_weights), torch.empty_like(read_weights)
    for some in _blocks(link):
        block, weights, reading = new[some], write_weights[some], read_weights[some]
        _decay(weights, out=block).mul_(link[some])
        block.addcmul_(weights.unsqueeze(2), precedence[some].unsqueeze(1))
        torch.diagonal(block, dim1=1, dim2=2).zero_()
        torch.bmm(reading, block.transpose(1, 2), out=forward[some])
        torch.bmm(reading, block, out=backward[some])
    return new, forward, backward


class _LinkStep(torch.autograd.Function):
    """`link_step` with a backward written by hand.

    Autograd would keep three (B, N, N) tensors of every step and walk over them a dozen times;
    this keeps only the link matrices themselves, each shared by two neighbouring steps.
    """

    @staticmethod
    def forward(
        ctx: Any, link: Tensor, write_weights: Tensor, precedence: Tensor, read_weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        new, forward, backward = _run_link_step(link, write_weights, precedence, read_weights)
        ctx.save_for_backward(link, new, write_weights, precedence, read_weights)
        ctx.set_materialize_grads(False)
        return new, forward, backward

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_new: Tensor | None, grad_forward: Tensor | None, grad_backward: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        link, new, write_weights, precedence, read_weights = ctx.saved_tensors
        nothing = torch.zeros_like(read_weights)
        onward = nothing if grad_forward is None else grad_forward
        back = nothing if grad_backward is None else grad_backward
        # Both weightings pull on the link by outer products: one product with 2R inner terms.
        left = torch.cat([onward, read_weights], dim=1).transpose(1, 2)
        right = torch.cat([read_weights, back], dim=1)

        blocks = _blocks(link)
        needs_link = ctx.needs_input_grad[0]
        grad_link = torch.empty_like(link) if needs_link else None
        spare = torch.empty_like(link[blocks[0]]) if blocks else link
        spare_pull = torch.empty_like(spare)
        grad_write, grad_precedence = torch.empty_like(write_weights), torch.empty_like(precedence)
        grad_reads = torch.empty_like(read_weights)
        for some in blocks:
            weights, count = write_weights[some], write_weights[some].shape[0]
            pull = spare_pull[:count] if grad_link is None else grad_link[some]
            torch.bmm(left[some], right[some], out=pull)
            if grad_new is not None:
                pull += grad_new[some]
            torch.diagonal(pull, dim1=1, dim2=2).zero_()
            torch.bmm(weights.unsqueeze(1), pull, out=grad_precedence[some].unsqueeze(1))
            torch.bmm(pull, precedence[some].unsqueeze(2), out=grad_write[some].unsqueeze(2))
            lost = torch.mul(pull, link[some], out=spare[:count])
            grad_write[some] -= lost.sum(2)
            grad_write[some] -= lost.sum(1)
            torch.bmm(onward[some], new[some], out=grad_reads[some])
            grad_reads[some].baddbmm_(back[some], new[some].transpose(1, 2))
            if needs_link:
                pull.mul_(_decay(weights, out=lost))
        return grad_link, grad_write, grad_precedence, grad_reads
