"""How far memories carry: measured on other walks, told in a table and a figure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from making import read_image

from mgmem.cli import main
from mgmem.errors import UsageError
from mgmem.experiments import carry, find
from mgmem.experiments.records import shipped_checksum
from mgmem.report.carry import carry_table, draw_carry


@pytest.fixture(scope="module")
def carried():
    told = []
    found = carry.carry("mapping-9", 4, told.append)
    assert told == found
    return found


def test_a_memory_is_scored_on_its_own_walk_and_on_longer_ones(carried):
    assert [(one.walk, one.steps) for one in carried] == [
        ("spiral", 49), ("random", 500), ("random", 1000), ("random", 1500), ("random", 5000)
    ]  # fmt: skip
    assert [one.own for one in carried] == [True, False, False, False, False]
    assert [one.episodes for one in carried] == [4, 4, 2, 2, 2]
    assert carried[0].value > 0.9
    assert all(one.low <= one.value <= one.high for one in carried)


def test_table_and_figure_say_what_was_measured(carried, tmp_path):
    table = carry_table(carried)
    assert "| spiral | random, 500 steps |" in table
    assert f"**{carried[0].value:.4f}**" in table
    carry.write(carried, tmp_path)
    page = tmp_path / "page.md"
    page.write_text("<!-- results:start -->\n<!-- results:end -->\n")
    words = ["report", "carry", "--page", str(page), "--out", str(tmp_path)]
    assert main([*words, "--results", str(tmp_path)]) == 0
    assert table in page.read_text()
    assert read_image(tmp_path / "carry.png").std() > 5
    (line,) = draw_carry(carried).axes[0].lines
    assert line.get_xdata().tolist() == [500, 1000, 1500, 5000]


def test_what_is_told_was_measured_on_the_weights_that_are_shipped():
    for one in carry.read():
        assert one.weights == shipped_checksum(one.experiment)


def test_one_memory_is_measured_anew_and_others_are_kept(carried, tmp_path, monkeypatch, capsys):
    others = [replace(one, experiment="mapping-15-small") for one in carried]
    carry.write([*others, *(replace(one, value=0.5) for one in carried)], tmp_path)
    monkeypatch.setattr(carry, "carry", lambda name, episodes, told: carried)
    page = tmp_path / "page.md"
    page.write_text("<!-- results:start -->\n<!-- results:end -->\n")
    words = ["report", "carry", "--measure", "--results", str(tmp_path), "--out", str(tmp_path)]
    words += ["--page", str(page), "--names"]
    assert main([*words, "mapping-9"]) == 0
    assert carry.read(tmp_path) == [*carried, *others]
    assert main([*words, "sort-20"]) == 2
    assert "no shipped memory sort-20" in capsys.readouterr().err


def test_what_was_not_measured_or_is_damaged_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="--measure"):
        carry.read(tmp_path)
    (tmp_path / "carry.json").write_text(json.dumps([{"experiment": 1}]))
    with pytest.raises(UsageError, match="damaged"):
        carry.read(tmp_path)
    with pytest.raises(UsageError, match="no multigrid memory"):
        carry.carry("mapping-15-dnc", 4, lambda one: None)


def test_optional_settings_of_a_task_can_be_left_out_again():
    task, _ = find("mapping-25-random").build(options={"motion": "spiral", "path_length": "none"})
    assert task.episode_length == 529
