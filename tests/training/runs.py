"""Starting real training runs: here, or as separate processes where one is to be killed."""

import contextlib
import io
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from mgmem.cli import main
from mgmem.training import checkpoint

# Small enough for a test, yet with everything that has to survive: stages, one of which hands its
# best weights on, carried memory, staggered groups, growing episodes, averages, evaluations.
_EACH = ("batch 4", "lesson.groups 2", "lesson.chunk 6", "validation.episodes 4")
SMALL = [
    "mapping-9", "--threads", "1", "--quiet",
    *[word for stage in ("reach", "learn", "finish") for setting in _EACH
      for word in f"--{stage}.{setting}".split()],
    "--reach.lesson.growth.start", "6", "--reach.lesson.growth.goal", "0.001",
    "--reach.updates", "20", "--reach.validation.every", "7", "--reach.hands-on", "best",
    "--learn.validation.every", "20", "--finish.validation.every", "20",
]  # fmt: skip


def updates(learn: int, finish: int = 3) -> tuple[str, ...]:
    """Lengths of the stages after the first, which has at most 20 updates."""
    return ("--learn.updates", str(learn), "--finish.updates", str(finish))


def command(folder: Path, *more: str, base: Sequence[str] = SMALL) -> list[str]:
    return [sys.executable, "-m", "mgmem", "train", *base, "--folder", str(folder), *more]


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    returncode: int
    stderr: str


def train(folder: Path, *more: str, base: Sequence[str] = SMALL) -> Ended:
    """The command, in this process: the same numbers, without loading PyTorch again."""
    _, _, _, _, *words = command(folder, *more, base=base)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(["train", *words])
    return Ended(code, said.getvalue())


def torchrun(folder: Path, processes: int, *more: str, base: Sequence[str] = SMALL) -> None:
    """torchrun, itself in this process; an error if one of the processes that it starts fails."""
    from torch.distributed.run import main as launch

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    start = [f"--nproc-per-node={processes}", "--standalone"]
    launch([*start, *command(folder, *more, base=base)[1:]])
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def final(folder: Path) -> dict:
    content, complaints = checkpoint.newest(folder)
    assert content is not None
    assert complaints == []
    return content


def assert_identical(one: dict, other: dict) -> None:
    """Weights, averages, optimiser, carried memory and curve agree to the last bit."""
    for name, tensor in one["model"].items():
        assert torch.equal(tensor, other["model"][name]), name
    stage, same = one["stage"], other["stage"]
    assert stage["update"] == same["update"]
    for name, tensor in stage["average"].items():
        assert torch.equal(tensor, same["average"][name]), name
    for name, tensor in stage["states"][0].items():
        assert torch.equal(tensor, same["states"][0][name]), name
    moments = zip(
        stage["optimizer"]["state"].values(), same["optimizer"]["state"].values(), strict=True
    )
    for mine, theirs in moments:
        for name, value in mine.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name])), name
    assert stage["feed"] == same["feed"]
    assert {**one["progress"], "seconds": 0, "curve": 0, "before": 0} == {
        **other["progress"], "seconds": 0, "curve": 0, "before": 0
    }  # fmt: skip
    for mine, theirs in zip(one["progress"]["curve"], other["progress"]["curve"], strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
