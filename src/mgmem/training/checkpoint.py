"""Checkpoints that survive: written whole or not at all, checked when read, never executed."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from mgmem.errors import UsageError
from mgmem.files import read_bytes, write_atomically

_FAMILY = b"mgmem-checkpoint-"
_MAGIC = _FAMILY + b"2 "
_NAME = re.compile(r"checkpoint-([0-9]{1,18})\.ckpt")
_KEPT = 2


class DamagedCheckpoint(UsageError):
    """The file is no whole checkpoint: truncated, altered, or something else altogether."""


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
        raw = read_bytes(path)
    except OSError as error:
        raise DamagedCheckpoint(f"{path}: can not be read ({error.strerror})") from None
    header, newline, payload = raw.partition(b"\n")
    if header.startswith(_FAMILY) and not header.startswith(_MAGIC):
        raise DamagedCheckpoint(f"{path}: a checkpoint of another version of mgmem")
    if not header.startswith(_MAGIC) or not newline:
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem")
    if hashlib.sha256(payload).hexdigest().encode() != header[len(_MAGIC) :]:
        raise DamagedCheckpoint(f"{path}: damaged (its checksum does not match its content)")
    _check_archive(path, payload)
    try:
        # weights_only: even a file with a right checksum can not run code.
        content = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except Exception:  # whatever a crafted archive makes its reader stumble over
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem") from None
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem")
    return content


def _check_archive(path: Path, payload: bytes) -> None:
    """Nothing in it is compressed or there twice, so it never holds more than its own size."""
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            parts = archive.infolist()
    except Exception:  # zipfile has many ways to fail
        raise DamagedCheckpoint(f"{path}: not a checkpoint of mgmem") from None
    packed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
    if packed or sum(part.file_size for part in parts) > len(payload):
        raise DamagedCheckpoint(f"{path}: a compressed archive, which no checkpoint of mgmem is")


def newest(
    folder: Path, check: Callable[[dict[str, Any]], None] = lambda content: None
) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint of a run folder, and what was wrong with any newer ones.

    ``check`` raises DamagedCheckpoint for content that is not what it has to be. (None, []) where
    there is no checkpoint. If there are some and all are damaged, that is an error: it is for the
    user to decide to start afresh.
    """
    complaints: list[str] = []
    for _, path in _found(folder):
        try:
            content = read(path)
        except DamagedCheckpoint as error:
            complaints.append(str(error))
            continue
        try:
            check(content)
            return content, complaints
        except DamagedCheckpoint as error:
            complaints.append(f"{path}: {error}")
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
