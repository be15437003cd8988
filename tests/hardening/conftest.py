"""What hardening tests share: runs as separate processes, and a limit on memory."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))  # runs.py

_ROOM = 2 << 30


@pytest.fixture
def two_gigabytes() -> Iterator[None]:
    """Whatever is read may take no more than this."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + _ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
