"""Files that survive and can be trusted: written whole or not at all, checked when read."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mgmem.errors import UsageError

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_ABANDONED_SECONDS = 3600.0


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment its old or its new content is there, whole.

    A temporary file in the same folder, fsync, rename, and fsync of the folder. On any error
    (a full disk) the temporary file is removed and the old content stays. A link is replaced, not
    followed. What a writer that was killed left an hour ago or more is cleared.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file, so not written", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _clear_abandoned(path)
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _clear_abandoned(path: Path) -> None:
    for left_over in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if time.time() - left_over.lstat().st_mtime > _ABANDONED_SECONDS:
            left_over.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """The content of a regular file; OSError for anything else: a pipe would be waited for."""
    with _regular(path, os.O_RDONLY, "rb") as file:
        return file.read()


def open_own(path: Path, flags: int) -> IO[bytes]:
    """Open or make a file of a folder for writing; never through a link that leads out of it."""
    mode = "r+b" if flags & os.O_RDWR else "ab"
    return _regular(path, flags | os.O_CREAT | _NO_LINK, mode)


def _regular(path: Path, flags: int, mode: str) -> IO[bytes]:
    handle = os.open(path, flags | _NO_WAIT, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return open(handle, mode, buffering=0)
    except BaseException:
        os.close(handle)
        raise


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file; never more than the file itself holds."""
    if not path.is_file():  # a pipe would be waited for
        raise UsageError(f"{path}: not a file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: the originals are the mapped file, and would change or vanish with it.
            return metadata, {n: file.get_tensor(n).clone() for n in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({error})") from None


def tensors_digest(tensors: Mapping[str, Tensor], about: str) -> str:
    """A checksum of a description, all names, kinds, shapes and values: safetensors has none."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
