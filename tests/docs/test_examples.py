"""The examples run as their first lines say."""

import sys
from pathlib import Path
from runpy import run_path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_loop_of_ones_own_says_how_many_bits_are_wrong(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sort_eight.py", "--updates", "2"])
    run_path(str(EXAMPLES / "sort_eight.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "update 2/2  wrong bits 0." in printed
