"""Exported, the step function gives the same numbers over a whole rollout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from comparing import assert_close, shaken
from mgmem import MultigridMemory, MultigridReader, Pyramid, UsageError
from mgmem.export import export_onnx, export_step
from mgmem.spec import grid_shape

# With others that export, one by one: each worker that does takes seconds to load what it needs.
pytestmark = pytest.mark.xdist_group("export")

STEPS = 5
Step = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def _networks(kind: str) -> tuple[MultigridMemory, MultigridReader | None]:
    if kind == "plain":
        memory = MultigridMemory(4, "0-1:4 0-2:8", check_finite=True)
        reader = None
    elif kind == "reader":
        memory = MultigridMemory(4, "0-1:4 0-2:4", peephole="channel")
        reader = memory.reader(2, tail="1-3:4 3:1")
    else:  # 1D, normed, an input and an answer on several levels
        memory = MultigridMemory("0-1:2", "0-1:3 0:3", (1,), norm=True, peephole="cell")
        reader = memory.reader("0-1:2", tail="0-1:2", norm=True)
        for module in (memory, reader):
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.uniform_(0.5, 1.5)
    shaken(memory, 0.1)
    return memory, reader


def _drawn(network: MultigridMemory | MultigridReader, batch: int) -> Pyramid:
    layer = network.input
    grids = (torch.randn(batch, layer.channels, *grid_shape(network.base, j)) for j in layer.levels)
    return Pyramid(layer.lowest, tuple(grids))


def _named(prefix: str, pyramid: Pyramid) -> dict[str, Tensor]:
    if len(pyramid) == 1:
        return {prefix: pyramid.finest}
    return {f"{prefix}.level{j}": grid for j, grid in zip(pyramid.levels, pyramid, strict=True)}


def _check_rollout(
    memory: MultigridMemory, reader: MultigridReader | None, step: Step, batch: int
) -> None:
    """The step's own state is fed back to it, so that errors would add up."""
    for module in (memory, reader):
        if module is not None:
            module.eval()
    state, carried = None, memory.initial_state(batch).tensors()
    with torch.no_grad():
        for _ in range(STEPS):
            x = _drawn(memory, batch)
            given = _named("x", x) | carried
            h, state = memory.step(x, state)
            if reader is None:
                expected = {
                    f"output.layer{n}.level{j}": layer[j]
                    for n, layer in enumerate(h, 1)
                    for j in layer.levels
                }
            else:
                query = _drawn(reader, batch)
                given |= _named("query", query)
                answer = reader(query, h)
                expected = (
                    _named("answer", answer) if isinstance(answer, Pyramid) else {"answer": answer}
                )
            expected |= {f"new.{name}": tensor for name, tensor in state.tensors().items()}
            results = step(given)
            assert list(results) == list(expected)
            for name, tensor in expected.items():
                assert_close(results[name], tensor, 1e-5, name)
            carried = {name: results[f"new.{name}"] for name in carried}


@pytest.mark.parametrize(("kind", "batch"), [("plain", 1), ("reader", 3), ("pyramids", 2)])
def test_the_exported_program_follows_pytorch(kind: str, batch: int) -> None:
    memory, reader = _networks(kind)
    module = export_step(memory, batch, reader=reader).module()
    dotted = {name.replace(".", "_"): name for name in _possible_results(memory)}

    def step(given: dict[str, Tensor]) -> dict[str, Tensor]:
        results = module(**{name.replace(".", "_"): tensor for name, tensor in given.items()})
        return {dotted[name]: tensor for name, tensor in results.items()}

    _check_rollout(memory, reader, step, batch)


def _possible_results(memory: MultigridMemory) -> list[str]:
    names = [f"new.{name}" for name in memory.initial_state(1).tensors()]
    names += ["answer", *(f"answer.level{level}" for level in range(5))]
    names += [
        f"output.layer{n}.level{j}" for n, layer in enumerate(memory.spec, 1) for j in layer.levels
    ]
    return names


@pytest.mark.parametrize(("kind", "batch"), [("plain", 1), ("reader", 2), ("pyramids", 1)])
def test_the_onnx_file_follows_pytorch_and_writing_it_says_nothing(
    kind: str, batch: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    memory, reader = _networks(kind)
    path = tmp_path / "step.onnx"
    export_onnx(memory, path, batch, reader=reader)
    assert capfd.readouterr() == ("", "")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def step(given: dict[str, Tensor]) -> dict[str, Tensor]:
        assert {node.name for node in session.get_inputs()} == set(given)
        results = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        return {name: torch.from_numpy(array) for name, array in zip(names, results, strict=True)}

    _check_rollout(memory, reader, step, batch)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["mgmem.spec"] == str(memory.spec)
    assert metadata["mgmem.input"] == str(memory.input)
    assert tuple(json.loads(metadata["mgmem.base"])) == memory.base
    assert metadata.get("mgmem.reader") == (str(reader.spec) if reader else None)
    assert metadata.get("mgmem.query") == (str(reader.input) if reader else None)


def test_exporting_leaves_the_memory_as_it_was() -> None:
    memory, _ = _networks("plain")
    memory.train()
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    export_step(memory)
    assert memory.training
    assert memory.check_finite
    assert all(torch.equal(before[name], tensor) for name, tensor in memory.state_dict().items())


def test_a_reader_of_another_mesh_is_refused(tmp_path: Path) -> None:
    memory, other = MultigridMemory(4, "0-1:4"), MultigridMemory(4, "0-1:2")
    for call in (
        lambda: export_step(memory, reader=other.reader(4, tail="0:1")),
        lambda: export_onnx(memory, tmp_path / "x.onnx", reader=other.reader(4, tail="0:1")),
    ):
        with pytest.raises(UsageError, match="a reader of 0-1:2; this memory is 0-1:4"):
            call()
    assert not list(tmp_path.iterdir())
