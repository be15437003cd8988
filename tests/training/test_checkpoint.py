"""A checkpoint is whole or it is not there."""

import os
import pickle

import pytest
import torch

from mgmem.training import checkpoint
from mgmem.training.checkpoint import DamagedCheckpoint


def save(folder, *updates):
    for update in updates:
        checkpoint.save(folder, update, {"update": update, "w": torch.arange(5.0)})


def test_the_newest_is_read_back(tmp_path):
    save(tmp_path, 1, 20, 3)
    content, complaints = checkpoint.newest(tmp_path)
    assert content["update"] == 20
    assert torch.equal(content["w"], torch.arange(5.0))
    assert complaints == []


def test_only_the_last_two_are_kept(tmp_path):
    save(tmp_path, 1, 2, 3, 10)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10.ckpt", "checkpoint-3.ckpt"]


def test_an_empty_folder_has_none(tmp_path):
    assert checkpoint.newest(tmp_path) == (None, [])


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def replace_by_pickle(path):
    path.write_bytes(pickle.dumps({"update": 99}))


DAMAGES = [truncate, flip_a_bit, empty, replace_by_pickle]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path, damage):
    save(tmp_path, 1, 2)
    damage(tmp_path / "checkpoint-2.ckpt")
    content, complaints = checkpoint.newest(tmp_path)
    assert content["update"] == 1
    assert "checkpoint-2.ckpt" in complaints[0]


@pytest.mark.parametrize("damage", DAMAGES)
def test_when_all_are_damaged_nothing_is_overwritten(tmp_path, damage):
    save(tmp_path, 1)
    path = tmp_path / "checkpoint-1.ckpt"
    damage(path)
    before = path.read_bytes()
    with pytest.raises(DamagedCheckpoint, match="no whole checkpoint"):
        checkpoint.newest(tmp_path)
    assert path.read_bytes() == before


def test_a_file_with_a_right_checksum_still_can_not_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    checkpoint.save(tmp_path, 1, {"evil": Evil()})
    with pytest.raises(DamagedCheckpoint, match="checkpoint-1"):
        checkpoint.read(tmp_path / "checkpoint-1.ckpt")
    assert not (tmp_path / "executed").exists()


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "file"
    checkpoint.write_atomically(path, b"old")

    def no_space(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
