"""Stopping when asked to, between two updates."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question asked between updates."""
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, remember) for number in watched]
    try:
        yield lambda: asked
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)
