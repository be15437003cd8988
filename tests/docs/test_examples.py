"""The examples run as their first lines say, and what they leave is of use."""

import sys
from pathlib import Path
from runpy import run_path

from mgmem.cli import main
from mgmem.training.weights import load_weights

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_loop_of_ones_own_leaves_weights_to_go_on_from(tmp_path, monkeypatch, capsys):
    start, folder = tmp_path / "eight.safetensors", tmp_path / "run"
    monkeypatch.setattr(sys, "argv", ["sort_eight.py", str(start), "--updates", "2"])
    run_path(str(EXAMPLES / "sort_eight.py"), run_name="__main__")
    _, about = load_weights(start)
    assert about["trained"]["updates"] == 2
    assert about["trained"]["steps"] == 16

    train = "train sort-20 --task length=3 spread=4 --seed 1 --updates 2 --evaluate-every 2"
    quick = f"--evaluate-episodes 2 --start {start} --folder {folder}"
    assert main([*train.split(), *quick.split()]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--episodes", "2", "--quiet"]) == 0
    assert "sort-20" in capsys.readouterr().out
