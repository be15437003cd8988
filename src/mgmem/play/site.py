"""All files of the page: what lies in page/, with the memory that is to be played."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from mgmem.errors import UsageError

PAGE = Path(__file__).parent / "page"
OPTIONAL = {"beside.json", "beside.bin"}
"""Files that only some pages have (beside.py)."""


def shipped_site() -> dict[str, bytes]:
    """The page as it is shipped: by name, such as "js/main.js"."""
    files = sorted(path for path in PAGE.rglob("*") if path.is_file())
    return {path.relative_to(PAGE).as_posix(): path.read_bytes() for path in files}


def digest(weights: Path) -> str:
    """What tells one weights file from another."""
    return hashlib.sha256(weights.read_bytes()).hexdigest()


def is_shipped(weights: Path) -> bool:
    """Whether the page is shipped with the memory of this weights file."""
    header = json.loads((PAGE / "memory.json").read_bytes())
    return header["about"]["source"] == digest(weights)


def write_site(site: Mapping[str, bytes], folder: Path) -> None:
    """Write all files into a new or empty folder, or over a page written there before."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / "memory.json").is_file():
            raise UsageError(f"{folder} holds other files: give a new or an empty folder")
        for name, content in site.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for name in OPTIONAL - site.keys():
            (folder / name).unlink(missing_ok=True)  # of a page written there before
    except OSError as error:
        raise UsageError(f"{folder} can not be written ({error.strerror}): give another") from None
