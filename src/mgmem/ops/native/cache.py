"""Where compiled kernels are kept, and which of them may be loaded.

Loading a library runs its code. So only what lies in a folder that is ours alone, belongs to us
and still has the content that its name states is ever loaded; all else is passed over and made
again. ``MGMEM_CACHE`` names another place for the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import time
from pathlib import Path

_log = logging.getLogger("mgmem.native")
_ABANDONED_SECONDS = 3600.0
_NO_LINK_NO_WAIT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class BuildError(Exception):
    """No library could be made; the message says why."""


def directory() -> Path:
    """The folder of kernels, made if there is none: no link, ours, and closed to others."""
    try:
        folder = _place() / "kernels"
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
            raise BuildError(f"{folder} is a link or belongs to somebody else: set MGMEM_CACHE")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
        _clear_abandoned(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no such home directory
        raise BuildError(f"no folder for compiled kernels ({error}): set MGMEM_CACHE") from error
    return folder


def _place() -> Path:
    if chosen := os.environ.get("MGMEM_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mgmem"


def find(folder: Path, name: str) -> Path | None:
    """A library kept under ``name`` that is ours and whole; any other is removed."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        if path.name == _stated_name(path, name):
            return path
        _log.warning("%s is damaged or not ours: it is made again", path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return None


def keep(library: Path, folder: Path, name: str) -> Path:
    """Move a library into the folder: whoever looks sees all of it or nothing."""
    library.chmod(0o700)
    stated = _stated_name(library, name)
    if stated is None:
        raise BuildError(f"{library} is no file of ours")
    path = folder / stated
    os.replace(library, path)
    return path


def _stated_name(path: Path, name: str) -> str | None:
    """The name that a library of this content has; None for a link, or what others can write."""
    try:
        handle = os.open(path, os.O_RDONLY | _NO_LINK_NO_WAIT)
    except OSError:
        return None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or not _is_ours(found) or found.st_mode & 0o022:
        os.close(handle)
        return None
    with open(handle, "rb") as file:
        return f"{name}-{hashlib.sha256(file.read()).hexdigest()[:32]}.so"


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _clear_abandoned(folder: Path) -> None:
    """Remove what compilations that were killed left behind."""
    for left_over in folder.glob("compiling-*"):
        if time.time() - left_over.lstat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(left_over, ignore_errors=True)
