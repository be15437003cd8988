"""Numbers below the smallest normal one are zeros to the kernels, and to nobody else."""

from __future__ import annotations

import platform

import pytest
import torch

from mgmem import MultigridCNN, MultigridMemory, backend
from mgmem.ops import native

pytestmark = [
    pytest.mark.skipif(not native.available(), reason="no C++ compiler here"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64", "arm64"),
        reason="only told to these processors",
    ),
]

TINY = 1e-20  # its square is not zero in float32, but no normal number either


def products(threads: int) -> torch.Tensor:
    """What an MG-conv layer makes of tiny kernels and tiny inputs."""
    network = MultigridCNN(1, "0:1")
    for parameter in network.parameters():
        torch.nn.init.constant_(parameter, TINY if parameter.dim() > 1 else 0.0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return network(torch.full((64, 1, 3, 3), TINY)).finest.detach()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_take_tiny_numbers_for_zero_on_every_thread(threads: int) -> None:
    with backend("reference"):
        assert (products(threads) > 0).all()
    with backend("native"):
        assert (products(threads) == 0).all()


def test_what_others_compute_on_the_same_threads_is_left_alone() -> None:
    """On threads that a kernel's call began, too: they begin as the one that began them was."""
    memory = MultigridMemory(1, "0-1:4 0-1:4")
    before = torch.get_num_threads()
    torch.set_num_threads(7)  # more than any other test: some begin here
    try:
        with backend("native"):
            h, _ = memory(torch.randn(4, 64, 1, 3, 3))
            h[-1].finest.sum().backward()
        tiny = torch.full((1_000_000,), TINY)  # enough for every thread of PyTorch's
        assert (tiny * tiny > 0).all()
    finally:
        torch.set_num_threads(before)
