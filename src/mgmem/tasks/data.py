"""Finding data files: the folder MGMEM_DATA, else the cache, else a checked download."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from mgmem.errors import UsageError

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class DataFile:
    """A public file: where it lies below a data folder, its md5, and where to get it."""

    folder: str
    name: str
    md5: str
    url: str

    def fault(self, content: bytes) -> str | None:
        """What is wrong with what was found, or None."""
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return None if found == self.md5 else f"its md5 is {found}, it should be {self.md5}"


def read_data_file(file: DataFile) -> bytes:
    """The checked content of a data file, downloaded to the cache at first use."""
    given = os.environ.get("MGMEM_DATA")
    path = (Path(given) if given else cache_folder()) / file.folder / file.name
    if path.is_file():
        content = path.read_bytes()
        fault = file.fault(content)
        if fault is not None:
            remedy = "replace it" if given else "delete it to have it downloaded again"
            raise UsageError(f"{path} is damaged: {fault}; {remedy}")
        return content
    if given:
        raise UsageError(
            f"MGMEM_DATA is {given}, but there is no {path}: put the file from {file.url} there, "
            "or unset MGMEM_DATA to have it downloaded"
        )
    content = _download(file, path)
    _write_atomically(path, content)
    return content


def cache_folder() -> Path:
    """Where downloads are kept: XDG_CACHE_HOME if set, else the platform's usual place."""
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "mgmem"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mgmem"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "mgmem" / "cache"
    return Path.home() / ".cache" / "mgmem"


def _download(file: DataFile, path: Path) -> bytes:
    by_hand = (
        f"download it elsewhere and put it at {path}, or set MGMEM_DATA to a folder with "
        f"{file.folder}/{file.name} in it"
    )
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"could not download {file.url} ({error}): {by_hand}") from error
    fault = file.fault(content)
    if fault is not None:
        raise UsageError(f"{file.url} gave a damaged file, {fault}: {by_hand}")
    return content


def _write_atomically(path: Path, content: bytes) -> None:
    """A reader, or another process doing the same, never sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as output:
                output.write(content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(
            f"could not write {path} ({error}): make room or set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error
