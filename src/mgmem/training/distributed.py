"""More than one process: ``torchrun --nproc-per-node=N -m mgmem train ...``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from mgmem.training.feed import Share


@contextmanager
def processes(device: torch.device) -> Iterator[Share]:
    """Join the group that torchrun started, if any; leave it at the end."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Share()
        return
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Share(dist.get_rank(), world)
    finally:
        dist.destroy_process_group()


def summed(value: Tensor) -> Tensor:
    """The sum of ``value`` over all processes."""
    if not dist.is_initialized():
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total


def agreed(flag: bool) -> bool:
    """True if it is in any process: so that all stop after the same update."""
    if not dist.is_initialized():
        return flag
    where = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return bool(summed(torch.tensor(float(flag), device=where)) > 0)


def all_states(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Every process's tensors, in rank order, on every process."""
    if not dist.is_initialized():
        return [tensors]
    gathered: list[dict[str, Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, tensors)
    return gathered
