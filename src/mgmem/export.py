"""The memory outside PyTorch: its step function as a ``torch.export`` program or an ONNX file.

State stays explicit: every tensor of it is an input and, after the step, an output. Exported is
``MultigridMemory.step`` in evaluation mode; with a reader, one query is answered after the step.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.files import write_atomically
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.reader import MultigridReader
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, grid_shape


def export_step(
    memory: MultigridMemory, batch: int = 1, *, reader: MultigridReader | None = None
) -> torch.export.ExportedProgram:
    """The step function for ``batch`` sequences as a program of plain PyTorch operations.

    Its module is called with keywords, and answers with a dictionary:

    - in: ``x``, one step without time, or ``x_level0``, ... for an input on several levels;
      with a reader ``query`` likewise; every state tensor, such as ``layer1_level0_h``.
    - out: with a reader ``answer`` (per level if its tail ends on several), without one the
      hidden state that each layer hands on, such as ``output_layer1_level0``; then every state
      tensor after the step, such as ``new_layer1_level0_h``.
    """
    step = _Step(memory, reader)
    arguments = {_identifier(name): tensor for name, tensor in step.example(batch).items()}
    return torch.export.export(step, (), arguments, strict=False)


def export_onnx(
    memory: MultigridMemory,
    path: str | os.PathLike[str],
    batch: int = 1,
    *,
    reader: MultigridReader | None = None,
) -> None:
    """Write the step function as ONNX, with the mesh in the file's metadata.

    Inputs and outputs are those of ``export_step``, named with dots as in ``state.tensors()``:
    ``x``, ``query``, ``layer1.level0.h``; ``answer``, ``output.layer1.level0``,
    ``new.layer1.level0.h``. Metadata: ``mgmem.spec``, ``mgmem.input``, ``mgmem.base`` and, with a
    reader, ``mgmem.reader`` (all its layers) and ``mgmem.query``.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"ONNX needs more packages ({error}): run pip install mgmem[onnx]"
        ) from None
    step = _Step(memory, reader)
    exported = export_step(memory, batch, reader=reader)
    with _without_foreign_warnings():
        program = torch.onnx.export(
            exported,
            dynamo=True,
            verbose=False,
            input_names=list(step.example(batch)),
            output_names=step.output_names(),
        )
    assert program is not None
    program.model.metadata_props.update(step.metadata())
    # Not by the program itself: what fails half way would leave half a file.
    write_atomically(Path(path), program.model_proto.SerializeToString())


@contextmanager
def _without_foreign_warnings() -> Iterator[None]:
    """PyTorch's exporter warns of its own older interface, and of packages it can do without."""
    registry = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = registry.level
    registry.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        registry.setLevel(before)


class _Step(nn.Module):
    """Flat named tensors in, flat named tensors out."""

    def __init__(self, memory: MultigridMemory, reader: MultigridReader | None) -> None:
        super().__init__()
        if reader is not None and reader.sees != memory.spec:
            raise UsageError(f"a reader of {reader.sees}; this memory is {memory.spec}")
        # A copy, so that evaluation mode and a switched off check do not touch the caller's.
        self.memory, self.reader = copy.deepcopy(memory).eval(), copy.deepcopy(reader)
        self.memory.check_finite = False
        if self.reader is not None:
            self.reader.eval()

    def forward(self, **tensors: Tensor) -> dict[str, Tensor]:
        state_names = list(self.memory.initial_state(1, torch.device("meta")).tensors())
        state = self.memory.state_from_tensors({n: tensors[_identifier(n)] for n in state_names})
        h, new = self.memory.step(_taken(tensors, "x", self.memory.input), state)
        if self.reader is None:
            results = _named_outputs(h)
        else:
            query = _taken(tensors, "query", self.reader.input)
            answer = self.reader(query, h)
            layer = self.reader.spec[-1]
            grids = answer.grids if isinstance(answer, Pyramid) else (answer,)
            results = dict(zip(_names("answer", layer), grids, strict=True))
        results |= {f"new.{name}": tensor for name, tensor in new.tensors().items()}
        return {_identifier(name): tensor for name, tensor in results.items()}

    def example(self, batch: int) -> dict[str, Tensor]:
        """Every input by name, with the right shape."""
        state = self.memory.initial_state(batch)
        like = next(iter(state.tensors().values()))
        inputs = [("x", self.memory.input, self.memory.base)]
        if self.reader is not None:
            inputs.append(("query", self.reader.input, self.reader.base))
        return {
            name: like.new_zeros((batch, layer.channels, *grid_shape(base, level)))
            for prefix, layer, base in inputs
            for name, level in zip(_names(prefix, layer), layer.levels, strict=True)
        } | state.tensors()

    def output_names(self) -> list[str]:
        """The names of all outputs, in order."""
        if self.reader is None:
            names = _mesh_names(self.memory.spec)
        else:
            names = _names("answer", self.reader.spec[-1])
        return names + [f"new.{name}" for name in self.memory.initial_state(1).tensors()]

    def metadata(self) -> dict[str, str]:
        """What the networks are, for the file."""
        known = {
            "mgmem.spec": str(self.memory.spec),
            "mgmem.input": str(self.memory.input),
            "mgmem.base": json.dumps(self.memory.base),
        }
        if self.reader is not None:
            known |= {"mgmem.reader": str(self.reader.spec), "mgmem.query": str(self.reader.input)}
        return known


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _names(prefix: str, layer: LayerSpec) -> list[str]:
    """The names of a layer's grids: the prefix alone if there is but one."""
    if len(layer.levels) == 1:
        return [prefix]
    return [f"{prefix}.level{level}" for level in layer.levels]


def _mesh_names(spec: MeshSpec) -> list[str]:
    return [
        f"output.layer{number}.level{level}"
        for number, layer in enumerate(spec, 1)
        for level in layer.levels
    ]


def _named_outputs(h: Sequence[Pyramid]) -> dict[str, Tensor]:
    return {
        f"output.layer{number}.level{level}": grid
        for number, layer in enumerate(h, 1)
        for level, grid in zip(layer.levels, layer, strict=True)
    }


def _taken(tensors: Mapping[str, Tensor], prefix: str, layer: LayerSpec) -> Pyramid:
    grids = tuple(tensors[_identifier(name)] for name in _names(prefix, layer))
    return Pyramid(layer.lowest, grids)
