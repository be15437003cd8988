"""What is written for a static host: whole, small, and of the memory that was asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgmem.cli import main
from mgmem.experiments import find
from mgmem.experiments.records import shipped_weights
from mgmem.play.export import FORMAT
from mgmem.play.site import PAGE, is_shipped, shipped_site
from mgmem.training.weights import load_weights, save_weights


def refused(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 2
    return capsys.readouterr().err


def weights_of(name, folder, options=None):
    _, model = find(name).build(options=options)
    path = folder / f"{name}.safetensors"
    about = {
        "experiment": name,
        "recipe": "fast",
        "seed": 0,
        **({"task": options} if options else {}),
    }
    save_weights(path, model.state_dict(), about)
    return path


def test_the_page_is_shipped_with_the_memory_that_is_shipped():
    """If not: `mgmem play mapping-15-small --out src/mgmem/play/page` writes it anew."""
    path = shipped_weights("mapping-15-small")
    assert is_shipped(path)
    weights = load_weights(path).tensors
    header = json.loads((PAGE / "memory.json").read_text())
    assert header["format"] == FORMAT
    numbers = (PAGE / "memory.bin").read_bytes()
    for entry in header["tensors"]:
        if not entry["name"].startswith("reader.") or not entry["name"].endswith("weight"):
            continue
        _, layer, level, _ = entry["name"].split(".")
        index = int(level) - header["reader"]["layers"][int(layer)][0]
        stored = np.frombuffer(numbers, "<f2", np.prod(entry["shape"]), entry["offset"])
        ours = weights[f"readers.0.layers.{layer}.weights.{index}"].numpy().astype(np.float16)
        np.testing.assert_array_equal(stored.reshape(entry["shape"]), ours)


def test_the_folder_is_under_a_megabyte_and_names_no_other_host(tmp_path, capsys):
    out = tmp_path / "page"
    assert main(["play", "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().out
    files = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert files == shipped_site()
    assert sum(map(len, files.values())) < 1_000_000
    for name, content in files.items():
        if not name.endswith(".bin"):
            assert b"://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
    assert main(["play", "--out", str(out)]) == 0  # over itself


def test_any_trained_mapping_memory_can_be_played(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    weights_of("mapping-9", tmp_path).rename(run / "best.safetensors")
    assert main(["play", str(run), "--out", str(tmp_path / "page")]) == 0
    header = json.loads((tmp_path / "page" / "memory.json").read_text())
    assert header["about"]["name"] == "mapping-9"
    assert header["task"]["world"] == 9


def test_what_can_not_be_played_is_refused(tmp_path, capsys):
    recall = weights_of("recall-10", tmp_path)
    assert "walks through mazes" in refused(capsys, "play", recall, "--out", tmp_path / "page")
    dnc = weights_of("mapping-15-lstm", tmp_path)
    assert "multigrid memories" in refused(capsys, "play", dnc, "--out", tmp_path / "page")
    assert "did you mean" in refused(capsys, "play", "maping-9")
    assert "port" in refused(capsys, "play", "--port", "70000", "--no-browser")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    assert "new or an empty folder" in refused(capsys, "play", "--out", full)
    assert [path.name for path in full.iterdir()] == ["thesis.txt"]
    file = tmp_path / "file"
    file.write_text("")
    assert "can not be written" in refused(capsys, "play", "--out", file)
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    "name", ["index.html", "style.css", "js/main.js", "js/worker.js", "memory.bin"]
)
def test_the_page_is_whole(name):
    assert name in shipped_site()
