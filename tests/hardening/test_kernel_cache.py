"""Compiled kernels: only what is ours, whole and in a folder closed to others is loaded."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from mgmem import MultigridMemory, backend
from mgmem.ops import native
from mgmem.ops.native import blocks, build, cache, library

needs_kernels = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that hands out the kernels that were compiled before, and counts how often."""
    path, made = tmp_path / "c++", build.library_path()
    path.write_text(
        f'#!/bin/sh\necho >> {tmp_path}/count\nwhile [ "$1" != -o ]; do shift; done\ncp {made} $2\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path / "cache"))
    return path


def compilations(compiler: Path) -> int:
    count = compiler.with_name("count")
    return len(count.read_text().splitlines()) if count.exists() else 0


@needs_kernels
def test_the_folder_is_closed_to_others_whatever_the_umask(compiler: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = build.library_path()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    path.parent.chmod(0o777)
    assert build.library_path() == path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert compilations(compiler) == 1


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def open_to_others(path: Path) -> None:
    path.chmod(0o777)


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))


def somebody_elses(path: Path) -> None:
    os.chown(path, 12345, 12345)


@needs_kernels
@pytest.mark.parametrize("harm", [truncated, flipped, open_to_others, a_link, somebody_elses])
def test_a_file_that_can_not_be_trusted_is_made_again(compiler: Path, harm) -> None:
    path = build.library_path()
    right = path.read_bytes()
    if harm is somebody_elses and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    harm(path)
    again = build.library_path()
    assert compilations(compiler) == 2
    assert again.read_bytes() == right
    assert not again.is_symlink()
    assert again.stat().st_uid == os.geteuid()
    assert build.library_path() == again
    assert compilations(compiler) == 2


@needs_kernels
def test_a_folder_that_is_a_link_or_somebody_elses_is_not_used(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(tmp_path / "theirs")
    with pytest.raises(cache.BuildError, match="somebody else"):
        build.library_path()
    (tmp_path / "cache" / "kernels").unlink()
    folder = build.library_path().parent
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(cache.BuildError, match="somebody else"):
        build.library_path()
    assert list((tmp_path / "theirs").iterdir()) == []
    assert folder.is_dir()


@pytest.mark.parametrize("place", ["~nobody-of-this-name/x", "x" * 5000, "/dev/null/x", "\udcff"])
def test_a_bad_place_for_the_cache_is_one_warning(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("MGMEM_CACHE", place)
    with pytest.raises(cache.BuildError):
        build.library_path()


@pytest.mark.parametrize("command", ["'", '"', " ", "no-such", "/dev/null", "true", "\udcff"])
def test_a_bad_compiler_is_a_build_error(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path))
    with pytest.raises(cache.BuildError):
        build.library_path()


def test_a_compiler_that_hangs_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "c++"
    hangs.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    hangs.chmod(0o755)
    monkeypatch.setenv("CXX", str(hangs))
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_TIMEOUT", 1.0)
    started = time.monotonic()
    with pytest.raises(cache.BuildError, match="more than 1 seconds"):
        build.library_path()
    assert time.monotonic() - started < 30
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != "zombie":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert list((tmp_path / "cache" / "kernels").iterdir()) == []


def test_what_killed_compilations_left_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGMEM_CACHE", str(tmp_path))
    old, new = (cache.directory() / f"compiling-{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir()
        (folder / "kernels.so").write_bytes(b"half")
    os.utime(old, (1, 1))
    assert list(cache.directory().iterdir()) == [new]


def test_a_bad_backend_is_one_sentence() -> None:
    environment = {**os.environ, "MGMEM_BACKEND": "bogus"}
    command = [sys.executable, "-m", "mgmem", "describe", "0:1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "mgmem: no backend 'bogus'; there are auto, native, scan, reference\n"


# Memory that kernels write to.


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[blocks.Idle]:
    fresh = blocks.Idle()
    monkeypatch.setattr(blocks, "idle", fresh)
    yield fresh
    fresh.forget()


@needs_kernels
def test_varied_lengths_hold_no_more_than_the_longest_took(idle: blocks.Idle) -> None:
    memory = MultigridMemory(2, "0-1:8 0-2:8 0-3:8")

    def train(length: int) -> None:
        h, _ = memory(torch.randn(length, 4, 2, 3, 3))
        h[-1].finest.sum().backward()

    with backend("native"):
        train(60)
        longest = idle.floats
        assert longest > 0
        for length in range(59, 20, -3):
            train(length)
            assert idle.floats <= longest
        train(21)
        kept = [block.data_ptr() for _, block in idle._blocks]
        train(21)
        assert sorted(block.data_ptr() for _, block in idle._blocks) == sorted(kept)


def test_a_block_serves_what_is_somewhat_smaller_and_takes_its_size(idle: blocks.Idle) -> None:
    first = library.empty((2 * blocks.LARGE,))
    address = first.data_ptr()
    del first
    smaller = library.empty((2 * blocks.LARGE * 9 // 10,))
    assert smaller.data_ptr() == address
    assert smaller.untyped_storage().nbytes() == 4 * smaller.numel()
    del smaller
    assert idle.floats == 2 * blocks.LARGE
    held = library.empty((blocks.LARGE,))  # too small for it: given back first
    assert held.numel() == blocks.LARGE
    assert idle.floats == 0


def test_idle_memory_is_given_back_when_nothing_asks_for_it(
    idle: blocks.Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    del [library.empty((blocks.LARGE,))][0]
    gc.collect()
    assert idle.floats == blocks.LARGE
    monkeypatch.setattr(blocks, "_IDLE_SECONDS", 0.0)
    gc.collect()
    assert idle.floats == 0


def test_idle_memory_has_a_limit(idle: blocks.Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_most_idle", lambda: 2 * blocks.LARGE)
    held = [library.empty((blocks.LARGE + n,)) for n in range(5)]
    assert idle.floats == 0
    held.clear()
    assert 0 < idle.floats <= 2 * blocks.LARGE
