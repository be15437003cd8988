"""``mgmem export NAME | RUN FOLDER | FILE --out FILE``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from mgmem.errors import UsageError
from mgmem.experiments.trained import load
from mgmem.export import export_onnx, export_step
from mgmem.files import write_atomically
from mgmem.nn import MultigridReader, ReadWrite

_LARGEST_BATCH = 10_000


@dataclass(frozen=True)
class Export:
    """Write a memory's step function for use without this package."""

    what: tyro.conf.Positional[str]
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    out: Path
    """File to write: .onnx, or .pt2 for a torch.export program."""
    batch: int = 1
    """Sequences side by side; fixed in the file."""
    reader: bool = False
    """Also answer one query per step, with the experiment's first reader."""


def run(arguments: Sequence[str]) -> None:
    """Parse and export."""
    options = tyro.cli(Export, prog="mgmem export", args=list(arguments))
    if options.out.suffix not in (".onnx", ".pt2"):
        raise UsageError(f"--out {options.out}: name the file .onnx or .pt2")
    if not 1 <= options.batch <= _LARGEST_BATCH:
        raise UsageError(f"--batch {options.batch}: give 1 to {_LARGEST_BATCH:,}")
    trained = load(options.what)
    model = trained.model
    if not isinstance(model, ReadWrite):
        raise UsageError(
            f"{trained.experiment.name} has no multigrid memory with readers, whose step could be "
            "exported"
        )
    reader = model.readers[0] if options.reader else None
    assert reader is None or isinstance(reader, MultigridReader)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        if options.out.suffix == ".onnx":
            export_onnx(model.memory, options.out, options.batch, reader=reader)
        else:
            program = export_step(model.memory, options.batch, reader=reader)
            content = io.BytesIO()
            torch.export.save(program, content)
            write_atomically(options.out, content.getvalue())
    except OSError as error:
        raise UsageError(f"{options.out} can not be written: {error.strerror}") from None
    print(f"written to {options.out}")
