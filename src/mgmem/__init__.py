"""Multigrid neural memory for PyTorch: a recurrent memory that is a network."""

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
    "set_backend",
]
