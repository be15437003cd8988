"""Checkpoints that survive: written whole or not at all, checked when read, never executed."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mgmem.errors import UsageError

_MAGIC = b"mgmem-checkpoint-1 "
_NAME = re.compile(r"checkpoint-(\d+)\.ckpt")
_KEPT = 2


class DamagedCheckpoint(UsageError):
    """The file is no whole checkpoint: truncated, altered, or something else altogether."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment its old or its new content is there, whole.

    A temporary file in the same folder, fsync, rename, and fsync of the folder. On any error
    (a full disk) the temporary file is removed and the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save(folder: Path, update: int, content: dict[str, Any]) -> Path:
    """Write the checkpoint of an update and remove all but the last two."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    digest = hashlib.sha256(payload).hexdigest().encode()
    path = folder / f"checkpoint-{update}.ckpt"
    write_atomically(path, _MAGIC + digest + b"\n" + payload)
    for _, old in list(_found(folder))[_KEPT:]:
        old.unlink(missing_ok=True)
    return path


def read(path: Path) -> dict[str, Any]:
    """Read one checkpoint; anything but a whole one raises DamagedCheckpoint."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{path}: can not be read ({error.strerror})") from None
    header, newline, payload = raw.partition(b"\n")
    if not header.startswith(_MAGIC) or not newline:
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem")
    if hashlib.sha256(payload).hexdigest().encode() != header[len(_MAGIC) :]:
        raise DamagedCheckpoint(f"{path}: damaged (its checksum does not match its content)")
    try:
        # weights_only: even a file with a right checksum can not run code.
        content = torch.load(io.BytesIO(payload), weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError):
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem") from None
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem")
    return content


def newest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint of a run folder, and what was wrong with any newer ones.

    (None, []) where there is none. If there are some and all are damaged, that is an error: it
    is for the user to decide to start afresh.
    """
    complaints: list[str] = []
    for _, path in _found(folder):
        try:
            return read(path), complaints
        except DamagedCheckpoint as error:
            complaints.append(str(error))
    if complaints:
        raise DamagedCheckpoint(
            "no whole checkpoint is left: "
            + "; ".join(complaints)
            + ". Remove them or use another "
            "--folder to start afresh"
        )
    return None, []


def _found(folder: Path) -> Iterator[tuple[int, Path]]:
    """Checkpoints of a folder, newest first."""
    named = ((_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*.ckpt"))
    yield from sorted(((int(m[1]), path) for m, path in named if m), reverse=True)
