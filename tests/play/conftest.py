"""A real browser on the real page."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playing import Visit

from mgmem.play.serve import Server, open_server
from mgmem.play.site import shipped_site

_NPM = shutil.which("npm")
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
]  # fmt: skip


@pytest.fixture(scope="session")
def site() -> Iterator[Server]:
    """The page as `mgmem play` serves it."""
    server = open_server(shipped_site(), 8420)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable[[], Any]]:
    """Gives the one browser, started anew if a busy machine has lost it."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install it")
    if _CHROMIUM is None:
        pytest.skip("needs chromium, which is not installed")
    started: list[Any] = []
    with api.sync_playwright() as playwright:

        def current() -> Any:
            if not started or not started[-1].is_connected():
                chromium = playwright.chromium
                started.append(chromium.launch(executable_path=_CHROMIUM, args=_FLAGS))
            return started[-1]

        yield current
        if started and started[-1].is_connected():
            started[-1].close()


@pytest.fixture
def chromium(launch: Callable[[], Any]) -> Any:
    return launch()


@pytest.fixture
def visit(chromium: Any, site: Server) -> Iterator[Visit]:
    with Visit(chromium, site, viewport={"width": 1280, "height": 900}) as made:
        yield made
    assert made.complaints == []
    assert [url for url in made.requests if not url.startswith(site.address)] == []


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, where npm can fetch it."""
    if _NPM is None:
        pytest.skip("needs npm to fetch axe-core, and it is not installed")
    folder = tmp_path_factory.mktemp("axe")
    command = [_NPM, "install", "--no-audit", "--no-fund", "--silent", "axe-core@4"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not fetch axe-core within 90 s")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.is_file():
        pytest.skip("npm could not fetch axe-core")
    return script.read_text()
