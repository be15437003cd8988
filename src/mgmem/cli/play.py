"""``mgmem play [NAME | RUN FOLDER | FILE]``."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS
from mgmem.experiments.trained import load, locate
from mgmem.play.serve import open_server
from mgmem.play.site import digest, is_shipped, shipped_site, write_site
from mgmem.training.weights import load_weights

_DEFAULT = "mapping-15-small"
_READING = "reading {} (a probe is fitted to it) ..."


@dataclass(frozen=True)
class Play:
    """Open a page in which a mapping memory walks through mazes, remembers and is asked.

    With an explorer, its policy decides in the page where to go.
    """

    what: tyro.conf.Positional[str] = _DEFAULT
    """A mapping experiment's or an explorer's name (its shipped weights), a run folder (its best
    weights) or a file."""
    memory: str | None = None
    """The frozen memory that an explorer was trained with; default: the exploration's."""
    beside: str | None = None
    """A DNC to ask beside the memory, as a switch on the page: a mapping experiment's name, such as
    mapping-15-dnc, a run folder or a file. It has to have learned the same worlds."""
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
    if options.beside is not None:
        from mgmem.play.beside import add_beside

        site = add_beside(site, options.beside, _memory(options))
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
    """The page with the memory, or the explorer, that was asked for."""
    site = shipped_site()
    if _is_explorer(options.what):
        from mgmem.play.explorer import read_explorer  # needs gymnasium, which is an extra

        print(_READING.format(options.what), flush=True)
        return site | read_explorer(options.what, options.memory)
    if options.memory is not None:
        raise UsageError(
            f"--memory {options.memory}: that is for explorers, and {options.what} is a memory "
            "itself: leave it out"
        )
    weights = locate(options.what)
    if not is_shipped(weights):
        from mgmem.play.export import export_memory

        trained = load(options.what)
        experiment = trained.experiment
        about = {"name": experiment.name, "title": experiment.title, "source": digest(weights)}
        print(_READING.format(options.what), flush=True)
        site |= export_memory(trained.model, trained.task, about)
    return site


def _memory(options: Play) -> str | None:
    """The memory that is played, by its name or place; None: the one of an exploration."""
    return options.memory if _is_explorer(options.what) else options.what


def _is_explorer(what: str) -> bool:
    """Whether an agent that explores is meant, by its name or by what its weights say."""
    if re.fullmatch(r"explore-\d+", what):
        return True
    if what in EXPERIMENTS:
        return False
    experiment: str = load_weights(locate(what)).about["experiment"]
    return experiment.startswith("explore-")
