"""What a memory remembers, as an explicit value: passed in, handed back, never hidden."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save as serialize
from torch import Tensor
from torch.serialization import add_safe_globals
from torch.utils._pytree import _register_namedtuple as register_namedtuple

from mgmem.errors import UsageError
from mgmem.files import read_tensors, tensors_digest, write_atomically
from mgmem.pyramid import Pyramid

_FORMAT = "mgmem-state-2"
_NAME = re.compile(
    r"layer(?P<layer>[1-9][0-9]{0,8})\.level(?P<level>0|[1-9][0-9]{0,8})\.(?P<name>[hc])"
)


class LayerState(NamedTuple):
    """Hidden state and memory cells of one layer; grids are (batch, channels, *space)."""

    h: Pyramid
    c: Pyramid


class MemoryState(NamedTuple):
    """The state of every layer, the one next to the input first.

    A pytree, as every named tuple is. ``==`` compares all numbers.
    """

    layers: tuple[LayerState, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryState) and self.layers == other.layers

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        raise TypeError("a MemoryState can not be hashed: it is compared by its numbers")

    def __repr__(self) -> str:
        kind = self.layers[0].c.grids[0].dtype
        return (
            f"MemoryState({len(self.layers)} layers, {self.cells:,} cells, "
            f"batch {self.batch}, {kind})"
        )

    @property
    def batch(self) -> int:
        """How many sequences this state belongs to."""
        return self.layers[0].c.grids[0].shape[0]

    @property
    def cells(self) -> int:
        """Memory cells per sequence: the sizes of all c."""
        return sum(grid.shape[1:].numel() for layer in self.layers for grid in layer.c)

    @property
    def nbytes(self) -> int:
        """Bytes of h and c together, all sequences."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def map(self, function: Callable[[Tensor], Tensor]) -> MemoryState:
        """Apply ``function`` to every tensor."""
        return MemoryState(
            tuple(LayerState(s.h.map(function), s.c.map(function)) for s in self.layers)
        )

    def detach(self) -> MemoryState:
        """The same values, cut from the graph: where truncated back-propagation stops."""
        return self.map(Tensor.detach)

    def clone(self) -> MemoryState:
        """A copy."""
        return self.map(Tensor.clone)

    def cpu(self) -> MemoryState:
        """The same values in the CPU's memory."""
        return self.map(Tensor.cpu)

    def to(self, *args: Any, **kwargs: Any) -> MemoryState:
        """Move or cast every tensor, as ``Tensor.to``."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def select(self, index: Tensor | Sequence[int] | slice) -> MemoryState:
        """The states of some sequences of the batch; always keeps the batch dimension."""
        # PyTorch takes a tuple for one index per dimension.
        chosen = index if isinstance(index, Tensor | slice) else list(index)
        return self.map(lambda tensor: tensor[chosen])

    @staticmethod
    def concatenate(states: Sequence[MemoryState]) -> MemoryState:
        """One state whose batch is those of ``states`` one after another."""
        if not states:
            raise UsageError("nothing to concatenate: give at least one state")
        first, *others = parts = [state.tensors() for state in states]
        for other in others:
            if other.keys() != first.keys():
                odd = sorted(other.keys() ^ first.keys())[0]
                raise UsageError(f"states of different meshes: only one of them has {odd}")
            for name, tensor in first.items():
                one, two = tuple(tensor.shape[1:]), tuple(other[name].shape[1:])
                if one != two:
                    raise UsageError(f"states of different meshes: {name} is {one} and {two}")
        return MemoryState.from_tensors({n: torch.cat([p[n] for p in parts]) for n in first})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: ``layer1.level0.h``, ``layer1.level0.c``, ..."""
        return {
            f"layer{number}.level{level}.{name}": grid
            for number, layer in enumerate(self.layers, 1)
            for name, pyramid in zip(("h", "c"), layer, strict=True)
            for level, grid in zip(pyramid.levels, pyramid, strict=True)
        }

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> MemoryState:
        """The inverse of ``tensors()``."""
        grids: dict[int, dict[str, dict[int, Tensor]]] = {}
        for key, tensor in tensors.items():
            match = _NAME.fullmatch(key)
            if match is None:
                raise UsageError(
                    f"not a memory state: tensor {key!r}; names look like layer1.level0.h"
                )
            slot = grids.setdefault(int(match["layer"]), {"h": {}, "c": {}})
            slot[match["name"]][int(match["level"])] = tensor
        if not grids or any(s["h"].keys() != s["c"].keys() for s in grids.values()):
            raise UsageError("not a memory state: h and c tensors do not come in pairs")
        for number, found in enumerate(sorted(grids), 1):
            levels = sorted(grids[found]["c"])
            if found != number or levels[-1] - levels[0] >= len(levels):
                raise UsageError(
                    f"not a memory state: layer{number} of {max(grids)} has levels "
                    f"{levels if found == number else []}; every layer needs levels without a gap"
                )
        return MemoryState(
            tuple(LayerState(*(_pyramid(grids[n][name]) for name in "hc")) for n in sorted(grids))
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as safetensors with a checksum: whole, or not at all."""
        tensors = {n: tensor.detach().cpu().contiguous() for n, tensor in self.tensors().items()}
        metadata = {"format": _FORMAT, "sha256": tensors_digest(tensors, _FORMAT)}
        write_atomically(Path(path), serialize(tensors, metadata))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> MemoryState:
        """Read a state written by ``save``; a damaged or foreign file is a clear error."""
        try:
            metadata, tensors = read_tensors(Path(path))
            if metadata.get("format") != _FORMAT:
                raise UsageError(f"{path}: not a state saved by this version of mgmem")
            if metadata.get("sha256") != tensors_digest(tensors, _FORMAT):
                raise UsageError(f"{path}: damaged (its checksum does not match its content)")
            for name, tensor in tensors.items():
                if not tensor.is_floating_point() or tensor.dim() < 3:
                    kind = f"{tensor.dtype} {tuple(tensor.shape)}"
                    raise UsageError(f"{path}: {name} is {kind}, not (batch, channels, *space)")
            return MemoryState.from_tensors(tensors)
        except UsageError as error:
            raise UsageError(f"not a readable memory state: {error}") from None


add_safe_globals([LayerState, MemoryState])  # for torch.load, which runs no code
for _kind in (LayerState, MemoryState):
    register_namedtuple(_kind, serialized_type_name=f"mgmem.{_kind.__name__}")


def _pyramid(grids: Mapping[int, Tensor]) -> Pyramid:
    return Pyramid(min(grids), tuple(grids[level] for level in sorted(grids)))
