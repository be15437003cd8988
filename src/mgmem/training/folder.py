"""A run folder has one writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mgmem.errors import UsageError
from mgmem.files import open_own

try:
    import fcntl
except ImportError:  # no such locks on this platform: runs are not kept apart there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def writing(folder: Path, resume: bool = True, rank: int = 0) -> Iterator[None]:
    """Make a run folder and be its only writer until the end of the block.

    Of several processes that train together the first writes.

    The lock is the operating system's: it ends with the process, however that ends. A folder that
    holds a run is refused unless it is to be resumed.
    """
    if rank:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_own(folder / "lock", os.O_RDWR)
    except OSError as error:
        raise UsageError(f"the run folder {folder} can not be made: {error.strerror}") from None
    with file:
        _lock(file.fileno(), folder)
        found = next(folder.glob("checkpoint-*.ckpt"), None)
        if found is not None and not resume:
            raise UsageError(f"{folder} holds a run ({found.name}): give another --folder")
        for left_over in folder.glob(".*.tmp"):  # of a writer that was killed
            left_over.unlink(missing_ok=True)
        yield


def _lock(file: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        writer = os.pread(file, 100, 0).decode(errors="replace").strip()
        raise UsageError(
            f"{folder} is being written by another training (process {writer or 'unknown'}): "
            "wait for it, stop it, or give another --folder"
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
