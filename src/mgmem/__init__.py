"""Multigrid neural memory for PyTorch: a recurrent memory that is a network."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from mgmem import waiting as _waiting  # noqa: F401  (first: before PyTorch is loaded)
from mgmem.errors import UsageError
from mgmem.nn import (
    EncoderDecoder,
    LayerState,
    MemoryState,
    MultigridCNN,
    MultigridMemory,
    MultigridReader,
    ReadWrite,
)
from mgmem.ops import backend, set_backend
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec

if TYPE_CHECKING:
    from mgmem.experiments.trained import Trained

__version__ = "0.1.0"

__all__ = [
    "EncoderDecoder",
    "LayerSpec",
    "LayerState",
    "MemoryState",
    "MeshSpec",
    "MultigridCNN",
    "MultigridMemory",
    "MultigridReader",
    "Pyramid",
    "ReadWrite",
    "UsageError",
    "__version__",
    "backend",
    "load",
    "set_backend",
]


def load(what: str | PathLike[str], device: str = "cpu") -> Trained:
    """Trained weights as a model that answers: ``.model``, ``.task``, ``.experiment``, ``.record``.

    what: an experiment's name (its shipped weights), a run folder (its best weights) or a file.
    """
    # Imported when called: who builds with the layers alone needs none of the experiments.
    from mgmem.experiments import trained

    return trained.load(what, device)
