"""Shipped weights go on where a recipe has had stages added."""

from dataclasses import replace

import pytest
import torch

from mgmem.cli import main
from mgmem.experiments import EXPERIMENTS, records, scored
from mgmem.experiments.records import load_records
from mgmem.training.checkpoint import newest
from mgmem.training.recipe import Recipe, Stage, Validation
from mgmem.training.walks import Walks

ROW = EXPERIMENTS["mapping-9"]
FIRST = Stage(
    "first",
    Walks(chunk=7),
    ROW.fast.stages[0].optimizer,
    updates=3,
    batch=2,
    validation=Validation(3, 4),
)
LONGER = Recipe((FIRST, replace(FIRST, name="second", updates=2)))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """The folder of weights of a row of one stage, trained, recorded and shipped."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setattr(records, "weights_folder", lambda: folder)
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path / "results")
    monkeypatch.setattr(scored, "_ENOUGH_EPISODES", 4)
    monkeypatch.setitem(EXPERIMENTS, "mapping-9", replace(ROW, fast=Recipe((FIRST,))))
    _train(tmp_path / "run")
    _publish(tmp_path / "run")
    return folder


def _train(folder, *more):
    arguments = ["train", "mapping-9", "--folder", str(folder), "--threads", "1", "--quiet", *more]
    return main(arguments)


def _publish(run):
    arguments = ["evaluate", str(run), "--episodes", "4", "--quiet", "--record", "--publish"]
    assert main([*arguments, "--force", "--results", str(records.results_folder())]) == 0


def _longer(monkeypatch, recipe=LONGER):
    monkeypatch.setitem(EXPERIMENTS, "mapping-9", replace(ROW, fast=recipe))


def test_shipped_weights_go_on_to_what_one_run_of_the_longer_recipe_comes_to(
    shipped, tmp_path, monkeypatch
):
    _longer(monkeypatch)
    assert _train(tmp_path / "on", "--go-on") == 0
    assert _train(tmp_path / "whole") == 0
    on, whole = (newest(tmp_path / name)[0] for name in ("on", "whole"))
    for name, tensor in whole["model"].items():
        assert torch.equal(tensor, on["model"][name]), name
    assert on["progress"]["updates"] == whole["progress"]["updates"]
    assert [point["update"] for point in on["progress"]["curve"]] == [3, 5]


def test_the_record_of_weights_that_went_on_holds_both_commands_and_all_they_took(
    shipped, tmp_path, monkeypatch
):
    (before,) = load_records(records.results_folder())
    _longer(monkeypatch)
    assert _train(tmp_path / "on", "--go-on") == 0
    _publish(tmp_path / "on")
    (record,) = load_records(records.results_folder())
    assert record.commands == ["mgmem train mapping-9", "mgmem train mapping-9 --go-on"]
    assert record.settings == LONGER.plain()
    assert (record.updates, record.steps) == (5, before.steps * 5 // 3)
    assert record.seconds > before.seconds
    assert record.curve[0] == before.curve[0]


def test_weights_that_have_seen_all_or_were_trained_otherwise_do_not_go_on(
    shipped, tmp_path, monkeypatch, capsys
):
    assert _train(tmp_path / "on", "--go-on") == 2
    assert "have seen all of the recipe" in capsys.readouterr().err
    _longer(monkeypatch)
    assert _train(tmp_path / "on", "--go-on", "--seed", "1") == 2
    assert _train(tmp_path / "on", "--go-on", "--first.updates", "4") == 2
    assert "were trained with other settings" in capsys.readouterr().err
    assert _train(tmp_path / "on", "--go-on", "--task", "world=11") == 2
    assert "no --task" in capsys.readouterr().err
    (shipped / "mapping-9.safetensors").unlink()
    assert _train(tmp_path / "on", "--go-on") == 2
    assert "no weights are shipped" in capsys.readouterr().err
    assert not (tmp_path / "on").exists()


def test_a_folder_goes_on_whatever_has_become_of_the_weights_that_it_began_with(
    shipped, tmp_path, monkeypatch
):
    _longer(monkeypatch)
    assert _train(tmp_path / "on", "--go-on") == 0
    _publish(tmp_path / "on")  # what it went on from is shipped no more
    third = replace(FIRST, name="third", updates=2)
    _longer(monkeypatch, Recipe((*LONGER.stages, third)))
    assert _train(tmp_path / "on", "--go-on") == 0
    (shipped / "mapping-9.safetensors").unlink()
    _longer(monkeypatch, Recipe((*LONGER.stages, third, replace(third, name="fourth"))))
    assert _train(tmp_path / "on") == 2, "it was begun with --go-on"
    assert _train(tmp_path / "on", "--go-on") == 0
    content, _ = newest(tmp_path / "on")
    assert [point["update"] for point in content["progress"]["curve"]] == [3, 5, 7, 9]
