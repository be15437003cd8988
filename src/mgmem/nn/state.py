"""What a memory remembers, as an explicit value: passed in, handed back, never hidden."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.pyramid import Pyramid


class LayerState(NamedTuple):
    """Hidden state and memory cells of one layer; grids are (batch, channels, *space)."""

    h: Pyramid
    c: Pyramid


class MemoryState(NamedTuple):
    """The state of every layer, the one next to the input first."""

    layers: tuple[LayerState, ...]

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
            try:
                layer, level, name = key.split(".")
                slot = grids.setdefault(int(layer.removeprefix("layer")), {"h": {}, "c": {}})
                slot[name][int(level.removeprefix("level"))] = tensor
            except (ValueError, KeyError):
                raise UsageError(
                    f"not a memory state: tensor {key!r}; names look like layer1.level0.h"
                ) from None
        if not grids or any(s["h"].keys() != s["c"].keys() for s in grids.values()):
            raise UsageError("not a memory state: h and c tensors do not come in pairs")
        for number in range(1, max(grids) + 1):
            levels = sorted(grids.get(number, {"c": {}})["c"])
            if not levels or levels != list(range(levels[0], levels[-1] + 1)):
                raise UsageError(
                    f"not a memory state: layer{number} of {max(grids)} has levels {levels}; "
                    "every layer needs levels without a gap"
                )
        return MemoryState(
            tuple(LayerState(*(_pyramid(grids[n][name]) for name in "hc")) for n in sorted(grids))
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state as safetensors."""
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.tensors().items()}
        save_file(tensors, os.fspath(path), metadata={"format": "mgmem-state"})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> MemoryState:
        """Read a state written by ``save``; a damaged or foreign file is a clear error."""
        try:
            with safe_open(os.fspath(path), framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{os.fspath(path)} is not a readable memory state: {error}") from None
        return MemoryState.from_tensors(tensors)


def _pyramid(grids: Mapping[int, Tensor]) -> Pyramid:
    return Pyramid(min(grids), tuple(grids[level] for level in sorted(grids)))
