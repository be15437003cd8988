"""How tests compare numbers, and slow independent spellings of the network's parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from mgmem import MemoryState, MultigridMemory, Pyramid

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def assert_close(actual: Tensor, expected: Tensor, relative: float, what: str = "") -> None:
    """The largest difference is at most ``relative`` times the largest expected value."""
    assert actual.shape == expected.shape, f"{what}: {actual.shape} and {expected.shape}"
    if actual.numel() == 0:
        return
    actual, expected = actual.detach(), expected.detach()
    scale = max(float(expected.abs().max()), 1e-3)
    error = float((actual - expected).abs().max()) / scale
    assert error <= relative, f"{what}: relative difference {error:.2e} exceeds {relative:.0e}"


def assert_all_close(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], relative: float
) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        assert_close(actual[name], expected[name], relative, name)


def named_outputs(h: Iterable[Pyramid], state: MemoryState) -> dict[str, Tensor]:
    """What a memory returned, as named tensors."""
    outputs = {
        f"output{number}.{level}": grid
        for number, layer in enumerate(h, 1)
        for level, grid in zip(layer.levels, layer, strict=True)
    }
    return outputs | state.tensors()


def shaken(module: torch.nn.Module, scale: float = 0.3) -> torch.nn.Module:
    """The module with noise on all parameters, so that none sits at a special value."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module


def random_state(memory: MultigridMemory, batch: int) -> MemoryState:
    return memory.initial_state(batch).map(torch.randn_like)


# Convolution, resizing and the LSTM once more, written without the functions mgmem uses.


def slow_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Zero-padded convolution tap by tap: x (N, C, *space), weight (K, C, *kernel)."""
    space, kernel = x.shape[2:], weight.shape[2:]
    half = kernel[0] // 2
    padded = x.new_zeros(*x.shape[:2], *(side + 2 * half for side in space))
    inside = (..., *(slice(half, half + side) for side in space))
    padded[inside] = x
    result = x.new_zeros(x.shape[0], weight.shape[0], *space)
    for tap in product(*(range(size) for size in kernel)):
        window = padded[(..., *(slice(t, t + side) for t, side in zip(tap, space, strict=True)))]
        result += torch.einsum("nc...,kc->nk...", window, weight[(..., *tap)])
    return result


def slow_upsampling(x: Tensor) -> Tensor:
    for dim in range(2, x.dim()):
        x = x.repeat_interleave(2, dim)
    return x


def slow_pooling(x: Tensor) -> Tensor:
    for dim in range(2, x.dim()):
        x = torch.maximum(
            x.index_select(dim, evens(x, dim)), x.index_select(dim, evens(x, dim) + 1)
        )
    return x


def evens(x: Tensor, dim: int) -> Tensor:
    return torch.arange(0, x.shape[dim], 2)


def slow_neighbours(grids: Mapping[int, Tensor], level: int) -> Tensor:
    """What ``level`` reads of the grids of the layer below, by level."""
    parts: list[Tensor] = []
    if level - 1 in grids:
        parts.append(slow_upsampling(grids[level - 1]))
    if level in grids:
        parts.append(grids[level])
    if level + 1 in grids:
        parts.append(slow_pooling(grids[level + 1]))
    return torch.cat(parts, 1)


def slow_lstm(
    sequence: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    x_to_gates: Tensor,
    h_to_gates: Tensor,
    bias: Tensor,
) -> tuple[list[Tensor], Tensor]:
    """A conv-LSTM as textbooks write it; gates i, f, g, o along the first weight dimension."""
    outputs = []
    both = torch.cat([x_to_gates, h_to_gates], 1)
    for x in sequence:
        z = slow_convolution(torch.cat([x, h], 1), both)
        z = z + bias.view(1, -1, *[1] * (x.dim() - 2))
        n = c.shape[1]
        write, keep = 1 / (1 + torch.exp(-z[:, :n])), 1 / (1 + torch.exp(-z[:, n : 2 * n]))
        content, show = torch.tanh(z[:, 2 * n : 3 * n]), 1 / (1 + torch.exp(-z[:, 3 * n :]))
        c = keep * c + write * content
        h = show * torch.tanh(c)
        outputs.append(h)
    return outputs, c
