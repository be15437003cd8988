"""Starting real training runs as separate processes."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from mgmem.training import checkpoint

# Small enough for a test, yet with everything that has to survive: carried memory, staggered
# groups, a growing horizon, averaged weights, evaluations.
SMALL = [
    "mapping-9", "--batch", "4", "--groups", "2", "--chunk", "6", "--horizon", "6",
    "--horizon-goal", "0.001", "--evaluate-episodes", "4", "--evaluate-every", "20",
    "--threads", "1", "--quiet",
]  # fmt: skip


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "mgmem", "train", *SMALL, "--folder", str(folder), *more]


def train(folder: Path, *more: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(folder, *more), capture_output=True, text=True, check=False, **options
    )


def torchrun(folder: Path, processes: int, *more: str) -> subprocess.CompletedProcess:
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    start += ["--standalone", *command(folder, *more)[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(start, capture_output=True, text=True, check=False, env=environment)


def final(folder: Path) -> dict:
    content, complaints = checkpoint.newest(folder)
    assert content is not None
    assert complaints == []
    return content


def assert_identical(one: dict, other: dict) -> None:
    """Weights, averages, optimiser, carried memory and curve agree to the last bit."""
    assert one["progress"]["update"] == other["progress"]["update"]
    for part in ("model", "average"):
        for name, tensor in one[part].items():
            assert torch.equal(tensor, other[part][name]), (part, name)
    for name, tensor in one["states"][0].items():
        assert torch.equal(tensor, other["states"][0][name]), name
    moments = zip(
        one["optimizer"]["state"].values(), other["optimizer"]["state"].values(), strict=True
    )
    for mine, theirs in moments:
        for name in mine:
            assert torch.equal(mine[name], theirs[name]), name
    assert one["feed"] == other["feed"]
    for mine, theirs in zip(one["progress"]["curve"], other["progress"]["curve"], strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
