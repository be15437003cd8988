"""Narrow numbers: under bfloat16 autocast the memory itself stays float32."""

from __future__ import annotations

import pytest
import torch

from comparing import assert_close
from mgmem import MultigridMemory, MultigridReader, backend


@pytest.fixture
def networks() -> tuple[MultigridMemory, MultigridReader]:
    memory = MultigridMemory(4, "0-1:4 0-1:4 0-2:8")
    return memory, memory.reader(4, tail="1-2:8 2:1")


def _gradients(
    networks: tuple[MultigridMemory, MultigridReader], narrow: bool, backward_inside: bool = False
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    memory, reader = networks
    torch.manual_seed(1)
    x, query = torch.randn(2, 6, 2, 4, 3, 3)
    parameters = [*memory.named_parameters(), *reader.named_parameters()]
    with backend("scan"), torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        h, state = memory(x)
        answer = reader(query, h)
        assert all(tensor.dtype == torch.float32 for tensor in state.tensors().values())
        loss = answer.float().square().mean() + h[-1].finest.mean()
        if backward_inside:
            gradients = torch.autograd.grad(loss, [p for _, p in parameters])
    if not backward_inside:
        gradients = torch.autograd.grad(loss, [p for _, p in parameters])
    return answer.detach(), {n: g for (n, _), g in zip(parameters, gradients, strict=True)}


def test_bfloat16_is_close_to_float32_forward_and_backward(
    networks: tuple[MultigridMemory, MultigridReader],
) -> None:
    wide, wide_gradients = _gradients(networks, narrow=False)
    narrow, narrow_gradients = _gradients(networks, narrow=True)
    assert narrow.dtype == torch.bfloat16
    assert not torch.equal(narrow.float(), wide)
    assert_close(narrow.float(), wide, 0.03, "answer")
    for name, gradient in wide_gradients.items():
        assert narrow_gradients[name].dtype == torch.float32
        # By their norms: a ReLU at zero may be open in one and closed in the other.
        assert (narrow_gradients[name] - gradient).norm() <= 0.1 * gradient.norm() + 1e-4, name


def test_a_backward_inside_the_autocast_block_keeps_the_recurrence_wide() -> None:
    memory = MultigridMemory(4, "0:4")
    x = torch.randn(6, 2, 4, 3, 3)
    gradients = []
    for inside in (False, True):
        with backend("scan"), torch.autocast("cpu", torch.bfloat16):
            loss = memory(x)[0][-1].finest.square().sum()
            if inside:
                gradients.append(
                    torch.autograd.grad(loss, memory.layers[0].recurrent_weights[0])[0]
                )
        if not inside:
            gradients.append(torch.autograd.grad(loss, memory.layers[0].recurrent_weights[0])[0])
    assert_close(gradients[1], gradients[0], 1e-6)
