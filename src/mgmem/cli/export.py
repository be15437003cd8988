"""``mgmem export NAME | RUN FOLDER | FILE --out FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from mgmem.cli.evaluate import load_model, locate
from mgmem.errors import UsageError
from mgmem.export import export_onnx, export_step
from mgmem.nn import ReadWrite


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
    if options.batch < 1:
        raise UsageError(f"--batch {options.batch}: give at least 1")
    experiment, _, model, _ = load_model(locate(options.what))
    if not isinstance(model, ReadWrite):
        raise UsageError(
            f"{experiment.name} has no multigrid memory with readers, whose step could be exported"
        )
    reader = model.readers[0] if options.reader else None
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        if options.out.suffix == ".onnx":
            export_onnx(model.memory, options.out, options.batch, reader=reader)  # type: ignore[arg-type]
        else:
            program = export_step(model.memory, options.batch, reader=reader)  # type: ignore[arg-type]
            torch.export.save(program, options.out)
    except OSError as error:
        raise UsageError(f"{options.out} can not be written: {error.strerror}") from None
    print(f"written to {options.out}")
