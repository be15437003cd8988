"""What hardening tests share: a limit on memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import psutil
import pytest

_ROOM = 2 << 30


@pytest.fixture
def two_gigabytes() -> Iterator[None]:
    """Whatever is read may take no more than this."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + _ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
