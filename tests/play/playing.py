"""What the tests of the page share: where it is, and what it needs to run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import mgmem.play
from mgmem.play.serve import Server

PAGE = Path(mgmem.play.__file__).parent / "page"
NODE = shutil.which("node")

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 360, "height": 740}}

needs_node = pytest.mark.skipif(NODE is None, reason="needs node, which is not installed")


def half(model: torch.nn.Module) -> torch.nn.Module:
    """The model with its weights rounded as the page has them."""
    for tensor in model.state_dict().values():
        tensor.copy_(tensor.half())
    return model


def until(page: Any, condition: str, seconds: float = 60) -> None:
    """Wait for a condition. The page's policy forbids the browser's own way of waiting: eval."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"still not so: {condition}"
        page.wait_for_timeout(30)


def drawn(page: Any) -> None:
    """What a new size or scheme brings has been laid out and painted."""
    page.evaluate("() => new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)))")


class Visit:
    """One visitor's tab, and everything that went wrong in it or left it."""

    def __init__(self, browser: Any, site: Server, **options: Any) -> None:
        self.site = site
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.context.on("request", lambda request: self.requests.append(request.url))

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, rest: str = "") -> Any:
        self.page.goto(self.site.address + rest)
        self.page.wait_for_selector("body.awake")
        return self.page

    def open_still(self, walk: str = "r", maze: int = 7) -> Any:
        """A maze with some steps done, standing still."""
        return self.open(f"#maze={maze}&walk={walk}")
