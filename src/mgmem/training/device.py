"""Where and how training computes: a device, threads, and bfloat16 where it is asked for."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from mgmem.errors import UsageError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Amp = Literal["none", "bf16"]


def pick_device(name: DeviceName = "auto") -> torch.device:
    """The device called so; "auto": a GPU where there is one, else the CPU."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    chosen = next(kind for kind, found in there.items() if found) if name == "auto" else name
    if not there[chosen]:
        raise UsageError(f"--device {name}: PyTorch finds none on this machine")
    # Each process of torchrun has a GPU of its own.
    index = int(os.environ.get("LOCAL_RANK", "0")) if chosen == "cuda" else None
    return torch.device(chosen) if index is None else torch.device(chosen, index)


def autocast(device: torch.device, amp: Amp) -> AbstractContextManager[object]:
    """Compute in bfloat16 where PyTorch says that it is safe, or as it is."""
    if amp == "none":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def set_threads(asked: int | None, processes: int) -> str:
    """Set the threads of computation; what was chosen, and why, as a sentence."""
    cores = os.cpu_count() or 1
    most = 8 * cores
    if asked is not None and not 1 <= asked <= most:
        raise UsageError(f"--threads {asked}: give 1 to {most}")
    threads = asked or max(1, cores // processes)
    torch.set_num_threads(threads)
    count = f"{threads} thread{'' if threads == 1 else 's'}"
    if asked:
        return f"{count}, as asked for"
    shared = f", shared by {processes} processes" if processes > 1 else ""
    return f"{count} on {cores} cores{shared}"
