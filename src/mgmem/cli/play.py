"""``mgmem play [NAME | RUN FOLDER | FILE]``."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mgmem.experiments.trained import load, locate
from mgmem.play.serve import open_server
from mgmem.play.site import digest, is_shipped, shipped_site, write_site

_DEFAULT = "mapping-15-small"


@dataclass(frozen=True)
class Play:
    """Open a page in which a mapping memory walks through mazes, remembers and is asked."""

    what: tyro.conf.Positional[str] = _DEFAULT
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    out: Path | None = None
    """Write the page into this folder, for any static host, instead of serving it."""
    port: int = 8420
    """Port on this machine; if it is taken, the next free one."""
    browser: bool = True
    """Open the page in the browser."""


def run(arguments: Sequence[str]) -> None:
    """Parse, and write or serve the page."""
    options = tyro.cli(Play, prog="mgmem play", args=list(arguments))
    site = _site(options)
    if options.out is not None:
        write_site(site, options.out)
        size = sum(map(len, site.values()))
        print(f"written to {options.out}: {len(site)} files, {size / 1e6:.2f} MB, for any web host")
        return
    server = open_server(site, options.port)
    if server.server_port != options.port:
        print(f"port {options.port} is taken; using {server.server_port}")
    print(f"{options.what} plays at {server.address} (Ctrl-C ends it)", flush=True)
    if options.browser:
        webbrowser.open(server.address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def _site(options: Play) -> dict[str, bytes]:
    """The page with the memory that was asked for."""
    weights = locate(options.what)
    site = shipped_site()
    if not is_shipped(weights):
        from mgmem.play.export import export_memory

        trained = load(options.what)
        experiment = trained.experiment
        about = {"name": experiment.name, "title": experiment.title, "source": digest(weights)}
        print(f"reading {options.what} (a probe is fitted to it) ...", flush=True)
        site |= export_memory(trained.model, trained.task, about)
    return site
