"""A disk that is full or may not be written: exit code 2, one message, nothing lost or halved."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mgmem import MemoryState, UsageError
from mgmem.cli import main
from mgmem.experiments.records import commit, read_record
from mgmem.files import write_atomically
from mgmem.training import checkpoint
from mgmem.training.weights import load_weights

KILLS = int(os.environ.get("MGMEM_TEST_KILLS", "1"))
TINY = [
    "mapping-9", "--recipe", "paper", "--threads", "1", "--quiet", "--train.batch", "4",
    "--train.lesson.groups", "2", "--train.lesson.chunk", "6", "--train.validation.episodes", "4",
    "--train.updates", "4", "--train.validation.every", "1",
]  # fmt: skip


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def read_only(folder: Path) -> Path:
    """A place where nobody, root included, can make a file."""
    (folder / "in-the-way").write_text("")
    return folder / "in-the-way" / "below"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object, size: int | None = None) -> str:
        capsys.readouterr()
        words = [str(word) for word in arguments]
        if size is None:
            assert main(words) == 2
        else:
            with full_disk(size):
                assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("mgmem: ")
        assert "Traceback" not in error
        assert len(error.splitlines()) == 1
        return error

    return run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert main(["train", *TINY, "--folder", str(folder), "--max-updates", "1"]) == 0
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*t*-*.ckpt")}


@pytest.mark.parametrize("size", [0, 4_000, 300_000, 500_000])
def test_training_ends_with_one_message_and_the_last_checkpoint_whole(
    run_folder: Path, tmp_path: Path, refused: Callable[..., str], size: int
) -> None:
    for path in run_folder.glob("*.*"):
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    before = content_of(tmp_path)
    refused("train", *TINY, "--folder", tmp_path, size=size)
    assert content_of(tmp_path) == before
    assert not list(tmp_path.glob(".*.tmp"))
    load_weights(tmp_path / "best.safetensors")
    assert main(["train", *TINY, "--folder", str(tmp_path), "--max-updates", "2"]) == 0
    content, complaints = checkpoint.newest(tmp_path)
    assert (content["stage"]["update"], complaints) == (2, [])


@pytest.mark.parametrize("size", [0, 4_000, 300_000])
def test_training_that_can_not_begin(
    tmp_path: Path, refused: Callable[..., str], size: int
) -> None:
    refused("train", *TINY, "--folder", tmp_path / "run", size=size)
    assert list((tmp_path / "run").glob("*.ckpt")) == []
    refused("train", *TINY, "--folder", read_only(tmp_path))


def test_recording_measuring_and_exporting(
    run_folder: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    record = ["evaluate", run_folder, "--episodes", "2", "--quiet", "--record", "--results"]
    measure = ["bench", "step", "mapping-9", "--repeats", "1", "--out"]
    export = ["export", run_folder, "--out"]
    for words, name in ((record, "results"), (measure, "step.json"), (export, "step.pt2")):
        for size, place in ((10, tmp_path / name), (None, read_only(tmp_path) / name)):
            refused(*words, place, size=size)
        assert not list(tmp_path.rglob("*.json"))
        assert not list(tmp_path.rglob("*.pt2"))
        assert not list(tmp_path.rglob("*.tmp"))


def test_asking_for_the_commit_leaves_the_repository_alone(tmp_path: Path) -> None:
    repository = Path(__file__).parents[2]
    asked = ["git", "rev-parse", "--absolute-git-dir"]
    found = subprocess.run(asked, cwd=repository, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no repository here")
    os.utime(repository / "src" / "mgmem" / "py.typed")  # the index has to be looked at again
    with full_disk(10):
        commit()
    assert not (Path(found.stdout.strip()) / "index.lock").exists()


def test_no_device_or_pipe_is_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(tmp_path / "pipe", b"x")
    assert not (tmp_path / "pipe").is_file()


def test_no_link_in_a_run_folder_leads_out_of_it(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    for name in ("lock", "log.jsonl"):
        folder = tmp_path / name
        folder.mkdir()
        outside = tmp_path / f"outside-{name}"
        outside.write_text("precious")
        (folder / name).symlink_to(outside)
        refused("train", *TINY, "--folder", folder)
        assert outside.read_text() == "precious"


def test_what_a_killed_writer_left_long_ago_is_cleared(tmp_path: Path) -> None:
    old, new = tmp_path / ".x.json.1.tmp", tmp_path / ".x.json.2.tmp"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (1, 1))
    write_atomically(tmp_path / "x.json", b"whole")
    assert not old.exists()
    assert new.exists()


WRITER = """
import sys
from pathlib import Path
from mgmem import MultigridMemory
from mgmem.experiments.records import load_records
state, record = MultigridMemory(4, "0-1:8 0-2:8").initial_state(8), load_records()[0]
while True:
    state.save(sys.argv[1])
    record.write(Path(sys.argv[2]))
"""


def test_states_and_records_are_whole_whenever_their_writer_is_killed(tmp_path: Path) -> None:
    state, moments = tmp_path / "state", random.Random(2)
    for _ in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, state, tmp_path / "results"])
        started, stamp = time.monotonic(), state.stat().st_mtime_ns if state.exists() else 0
        while not state.exists() or state.stat().st_mtime_ns == stamp:
            assert writer.poll() is None
            assert time.monotonic() - started < 120
            time.sleep(0.01)
        time.sleep(moments.uniform(0.01, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert MemoryState.load(state).batch == 8
        for path in tmp_path.rglob("*.json"):
            read_record(path)
    with pytest.raises(UsageError):
        MemoryState.load(tmp_path)
