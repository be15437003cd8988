"""State is a value: named, selected, joined, measured, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mgmem import MemoryState, MultigridMemory, UsageError


@pytest.fixture
def memory() -> MultigridMemory:
    return MultigridMemory(4, "0-1:4 1-2:8")


@pytest.fixture
def state(memory: MultigridMemory) -> MemoryState:
    return memory(torch.randn(3, 4, 4, 3, 3))[1]


def _equal(one: MemoryState, other: MemoryState) -> bool:
    a, b = one.tensors(), other.tensors()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_tensors_are_named_by_layer_and_level(state: MemoryState) -> None:
    grids = {"layer1.level0": 3, "layer1.level1": 6, "layer2.level1": 6, "layer2.level2": 12}
    names = state.tensors()
    assert set(names) == {f"{grid}.{kind}" for grid in grids for kind in "hc"}
    for grid, side in grids.items():
        channels = 4 if grid.startswith("layer1") else 8
        assert names[f"{grid}.c"].shape == (4, channels, side, side)
    assert _equal(MemoryState.from_tensors(names), state)
    shuffled = dict(sorted(names.items(), reverse=True))
    assert _equal(MemoryState.from_tensors(shuffled), state)


def test_cells_and_bytes(memory: MultigridMemory, state: MemoryState) -> None:
    cells = 4 * (9 + 36) + 8 * (36 + 144)
    assert state.cells == memory.cells == memory.initial_state(0).cells == cells
    assert state.batch == 4
    assert state.nbytes == 2 * 4 * cells * 4
    assert state.to(torch.float64).nbytes == 2 * state.nbytes


def test_an_empty_memory_is_all_zero_and_its_tensors_are_its_own(memory: MultigridMemory) -> None:
    tensors = memory.initial_state(2).tensors()
    assert not any(bool(tensor.any()) for tensor in tensors.values())
    assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)


@pytest.mark.parametrize("index", [[2, 0], (2, 0), torch.tensor([2, 0]), slice(2, None, -2)])
def test_select_takes_sequences_of_the_batch(state: MemoryState, index: object) -> None:
    if isinstance(index, slice):
        index = slice(0, 3, 2)
        expected = [0, 2]
    else:
        expected = [2, 0]
    chosen = state.select(index)  # type: ignore[arg-type]
    assert chosen.batch == 2
    for name, tensor in chosen.tensors().items():
        assert torch.equal(tensor, state.tensors()[name][expected])


def test_select_by_mask_and_of_nothing(state: MemoryState) -> None:
    assert state.select(torch.tensor([True, False, False, True])).batch == 2
    assert state.select([]).batch == 0


def test_concatenate_undoes_select(state: MemoryState) -> None:
    parts = [state.select([0]), state.select(slice(1, 3)), state.select([3])]
    assert _equal(MemoryState.concatenate(parts), state)


def test_concatenate_refuses_nothing_and_other_meshes(state: MemoryState) -> None:
    with pytest.raises(UsageError, match="at least one"):
        MemoryState.concatenate([])
    other = MultigridMemory(4, "0-1:4 0-2:8").initial_state(1)
    with pytest.raises(UsageError, match="different meshes"):
        MemoryState.concatenate([state, other])
    wider = MultigridMemory(4, "0-1:4 1-2:6").initial_state(1)
    with pytest.raises(UsageError, match=r"layer2.level1.h is \(8, 6, 6\).*\(6, 6, 6\)"):
        MemoryState.concatenate([state, wider])


def test_detach_and_to_and_map(state: MemoryState) -> None:
    assert all(tensor.requires_grad for tensor in state.tensors().values())
    assert not any(tensor.requires_grad for tensor in state.detach().tensors().values())
    assert _equal(state.detach(), state)
    half = state.to(torch.bfloat16)
    assert {tensor.dtype for tensor in half.tensors().values()} == {torch.bfloat16}
    assert _equal(state.map(torch.neg).map(torch.neg), state)


def test_a_saved_state_goes_on_as_if_never_saved(
    memory: MultigridMemory, state: MemoryState, tmp_path: Path
) -> None:
    state.save(tmp_path / "state.safetensors")
    loaded = MemoryState.load(tmp_path / "state.safetensors")
    assert _equal(loaded, state)
    x = torch.randn(2, 4, 4, 3, 3)
    assert _equal(memory(x, loaded)[1], memory(x, state)[1])


def test_empty_selected_and_narrow_states_can_be_saved(
    memory: MultigridMemory, state: MemoryState, tmp_path: Path
) -> None:
    for made in (memory.initial_state(2), state.select(slice(1, 3)), state.to(torch.bfloat16)):
        made.save(tmp_path / "state.safetensors")
        assert _equal(MemoryState.load(tmp_path / "state.safetensors"), made)


def test_damaged_files_are_refused(state: MemoryState, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    state.save(path)
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:20], b"\xff" * 1000, whole[8:]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="not a readable memory state"):
            MemoryState.load(path)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.safetensors", tmp_path):
        with pytest.raises(UsageError, match="not a readable memory state"):
            MemoryState.load(path)


def test_foreign_files_are_refused(state: MemoryState, tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    for tensors in ({"weight": torch.zeros(2, 3)}, {}, state.detach().tensors()):
        save_file(tensors, path)
        with pytest.raises(UsageError, match="not a state saved by this version"):
            MemoryState.load(path)
    torch.save(state.tensors(), path)
    with pytest.raises(UsageError, match="not a readable memory state"):
        MemoryState.load(path)


@pytest.mark.parametrize(
    "name", ["weight", "a.b.c", "layer1.level0.x", "layerX.level0.h", "layer01.level0.h",
             "layer1.level-1.h", "layer1.level1_0.h", "layer0.level0.h"],
)  # fmt: skip
def test_only_the_names_that_tensors_gives_are_taken_back(name: str) -> None:
    with pytest.raises(UsageError, match=f"not a memory state: tensor '{name}'"):
        MemoryState.from_tensors({name: torch.zeros(1, 1, 1)})


@pytest.mark.parametrize(
    "lost", [["layer1.level0.h"], ["layer2.level1.c"], ["layer1.level0.h", "layer1.level1.h"]]
)
def test_a_state_with_a_tensor_lost_is_refused(state: MemoryState, lost: list[str]) -> None:
    tensors = {name: tensor for name, tensor in state.tensors().items() if name not in lost}
    with pytest.raises(UsageError, match="pairs"):
        MemoryState.from_tensors(tensors)


@pytest.mark.parametrize("lost", ["layer1.", "layer2.level1."])
def test_a_state_with_a_layer_or_a_level_between_lost_is_refused(lost: str) -> None:
    tensors = MultigridMemory(1, "0-1:1 0-2:1 0-1:1").initial_state(1).tensors()
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(lost)}
    with pytest.raises(UsageError, match=f"not a memory state: {lost[:6]}"):
        MemoryState.from_tensors(kept)


def test_a_memory_takes_back_only_states_of_its_own_mesh(
    memory: MultigridMemory, state: MemoryState
) -> None:
    assert _equal(memory.state_from_tensors(state.tensors()), state)
    other = MultigridMemory(4, "0-1:4 1-2:6").initial_state(4)
    with pytest.raises(UsageError, match="another mesh"):
        memory.state_from_tensors(other.tensors())
