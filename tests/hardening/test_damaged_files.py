"""Files of every kind, damaged: refused with one error, or read as what was written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from damage import COUNT, damaged

from mgmem import MemoryState, MultigridMemory, UsageError
from mgmem.experiments.records import load_records, read_record
from mgmem.ops.native import cache
from mgmem.tasks.data import DataFile, read_data_file
from mgmem.training import checkpoint
from mgmem.training.weights import load_weights, save_weights

Kind = tuple[Callable[[Path], Path], Callable[[Path], Any]]


def written_weights(folder: Path) -> Path:
    about = {"experiment": "mapping-9", "recipe": "fast", "seed": 3, "trained": {"updates": 4}}
    path = folder / "weights.safetensors"
    save_weights(path, {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7)}, about)
    return path


def read_weights(path: Path) -> Any:
    weights = load_weights(path)
    return {name: tensor.tolist() for name, tensor in weights.tensors.items()}, weights.about


def written_state(folder: Path) -> Path:
    path = folder / "state.safetensors"
    MultigridMemory(1, "0-1:2 0:1").initial_state(2).map(torch.randn_like).save(path)
    return path


def written_checkpoint(folder: Path) -> Path:
    content = {"update": 3, "names": ["a"], "tensors": {"x": torch.arange(10.0)}}
    return checkpoint.save(folder, 3, content)


def read_checkpoint(path: Path) -> Any:
    content = checkpoint.read(path)
    return content["update"], content["names"], content["tensors"]["x"].tolist()


def written_data(folder: Path) -> Path:
    (folder / "some").mkdir()
    (folder / "some" / "data.gz").write_bytes(b"data" * 50)
    return folder / "some" / "data.gz"


def read_data(path: Path) -> bytes:
    right = hashlib.md5(b"data" * 50, usedforsecurity=False).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGMEM_DATA", str(path.parent.parent))
        return read_data_file(DataFile("some", "data.gz", right, "nowhere"))


def written_kernels(folder: Path) -> Path:
    made = folder / "made"
    made.write_bytes(Random(0).randbytes(2000))
    (folder / "kernels").mkdir()
    return cache.keep(made, folder / "kernels", "kernels-0")


def read_kernels(path: Path) -> bytes:
    found = cache.find(path.parent, "kernels-0")
    if found is None:
        raise UsageError("made again")
    return found.read_bytes()


KINDS: dict[str, Kind] = {
    "weights": (written_weights, read_weights),
    "state": (written_state, MemoryState.load),
    "checkpoint": (written_checkpoint, read_checkpoint),
    "data": (written_data, read_data),
    "kernels": (written_kernels, read_kernels),
}


@pytest.mark.usefixtures("two_gigabytes")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_noticed(kind: str, tmp_path: Path) -> None:
    write, read = KINDS[kind]
    path = write(tmp_path)
    whole, right = path.read_bytes(), read(path)
    for seed in range(COUNT // 8):
        path.write_bytes(damaged(whole, Random(seed)))
        try:
            found = read(path)
        except UsageError:
            continue
        assert found == right, seed
    path.write_bytes(whole)
    assert read(path) == right


@pytest.mark.usefixtures("two_gigabytes")
def test_a_damaged_record_is_named_or_still_one(tmp_path: Path) -> None:
    """Records are plain text for people to read: they have kinds, but no checksum."""
    path = load_records()[0].write(tmp_path)
    whole = path.read_bytes()
    for seed in range(COUNT // 8):
        path.write_bytes(damaged(whole, Random(seed)))
        try:
            record = read_record(path)
        except UsageError:
            continue
        assert f"{record.estimate()} {record.steps_to(0.5)}", seed


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_or_a_folder_is_refused_and_not_waited_for(kind: str, tmp_path: Path) -> None:
    write, read = KINDS[kind]
    path = write(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError):
        read(path)
    if path.exists():
        path.unlink()
    path.mkdir()
    with pytest.raises(UsageError):
        read(path)
