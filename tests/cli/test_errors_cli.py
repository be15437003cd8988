"""Bad input: exit code 2, one clear message, no traceback, nothing overwritten."""

import pickle

import pytest
import torch
from safetensors.torch import save_file

from mgmem.cli import main
from mgmem.experiments import find
from mgmem.training.weights import save_weights


def refused(capsys, *arguments):
    """The message of a command that ends with 2, be it ours or the parser's."""
    try:
        code = main(list(arguments))
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("mgmem: ") or "For full helptext" in error
    assert "Traceback" not in error
    return error


def test_an_unknown_command_names_the_known_ones(capsys):
    assert "train" in refused(capsys, "trian")


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_an_unknown_experiment_suggests_the_nearest(capsys, command):
    assert "'mapping-9'" in refused(capsys, command, "maping-9")
    assert "'mapping-15-dnc'" in refused(capsys, command, "mapping-15-dcn")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "mapping-9", "--learn.batch", "10", "--learn.lesson.groups", "4"), "groups"),
        (("train", "mapping-9", "--threads", "-2"), "--threads -2"),
        (("train", "mapping-9", "--threads", "100000"), "--threads 100000"),
        (("train", "mapping-9", "--max-updates", "-1"), "--max-updates -1"),
        (("train", "mapping-9", "--max-minutes", "nan"), "--max-minutes nan"),
        (("train", "mapping-9", "--seed", "-1"), "--seed -1"),
        (("train", "mapping-9", "--seed", "9" * 20), "--seed 9999"),
        (("train", "--seed", "3"), "name an experiment"),
        (("train", "--seed", "3", "maping-9"), "'mapping-9'"),
        (("train", "mapping-9", "--device", "cuda"), "--device cuda"),
        (("list", "zzz"), "zzz"),
        (("show", "nope"), "nope"),
        (("describe", "0-1:4", "--kernel", "2"), "kernel"),
        (("describe", "0-1:4", "--base", "0"), "base"),
        (("train", "mapping-9", "--until", "error<=0.1"), "f>="),
        (("train", "recall-10", "--until", "f>=0.1"), "error<="),
        (("train", "mapping-9", "--learn.lesson.queries.share", "2"), "queries at 2.0"),
        (("train", "mapping-9", "--task", "world=10"), "odd"),
        (("train", "mapping-9", "--task", "world=25"), "grid"),
        (("train", "mapping-9", "--task", "fov=5"), "5 (the field of view)"),
        (("train", "mapping-9", "--task", "fov=5", "queries=5"), "(4, 5, 5)"),
        (("train", "mapping-9", "--task", "wrold=9"), "'wrold'"),
        (("train", "mapping-9", "--task", "world=big"), "world=big"),
        (("train", "mapping-9", "--task", "world"), "NAME=VALUE"),
        (("train", "mapping-9", "--task", "queries=5"), "can not be laid onto"),
        (("train", "mapping-9", "--learn.rate.peak", "0"), "peak 0.0"),
        (("train", "mapping-9", "--learn.rate.peak", "inf"), "peak inf"),
        (("train", "mapping-9", "--learn.clip", "nan"), "clip"),
        (("describe", "0-1:4 3:8"), "out of reach"),
        (("describe", "0-1:4", "--input", "4:4"), "out of reach of the input"),
        (("evaluate", "mapping-25-fov9"), "no weights are shipped"),
    ],
)
def test_impossible_options_are_explained(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def truncated(path):
    path.write_bytes(path.read_bytes()[:-50])


def flipped_header(path):
    content = bytearray(path.read_bytes())
    content[12] ^= 0x40
    path.write_bytes(content)


def flipped_weight(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def foreign_safetensors(path):
    save_file({"x": torch.zeros(3)}, path)


def pickled(path):
    path.write_bytes(pickle.dumps({"x": 1}))


@pytest.mark.parametrize(
    "damage", [truncated, flipped_header, flipped_weight, foreign_safetensors, pickled]
)
def test_damaged_and_foreign_weights_are_refused(capsys, tmp_path, damage):
    path = tmp_path / "weights.safetensors"
    _, model = find("mapping-9").build()
    save_weights(path, model.state_dict(), {"experiment": "mapping-9", "recipe": "fast", "seed": 0})
    damage(path)
    before = path.read_bytes()
    assert "weights.safetensors" in refused(capsys, "evaluate", str(path))
    assert path.read_bytes() == before


def test_weights_of_another_model_are_refused(capsys, tmp_path):
    path = tmp_path / "weights.safetensors"
    _, model = find("recall-10-dnc").build()
    save_weights(path, model.state_dict(), {"experiment": "mapping-9", "recipe": "fast", "seed": 0})
    assert "another model" in refused(capsys, "evaluate", str(path))


def test_a_folder_without_weights_is_refused(capsys, tmp_path):
    assert "best.safetensors" in refused(capsys, "evaluate", str(tmp_path))


def test_list_and_describe_print(capsys):
    assert main(["list", "mapping-15"]) == 0
    listed = capsys.readouterr().out
    assert "123,273" in listed
    assert "f 0.9983" in listed
    assert main(["describe", "0-1:4 0-2:8"]) == 0
    assert "12x12" in capsys.readouterr().out
    assert main([]) == 0
    assert "usage" in capsys.readouterr().out
