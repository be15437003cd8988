"""Training, evaluating and showing explorers from the command line, for a few real steps."""

import json
from pathlib import Path

import numpy as np
import pytest

from mgmem.cli import main
from mgmem.experiments import explore_trained, records
from mgmem.experiments.explore import EXPLORATIONS, RULES, SYSTEMS
from mgmem.experiments.explore_records import load_walk_records, walk_table
from mgmem.report import explore_tables
from mgmem.report.explore_curves import draw_company, draw_learning
from mgmem.report.style import save_figure
from mgmem.report.tables import END, START, check_between
from mgmem.training import checkpoint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exploration.md"
MEMORY = EXPLORATIONS["explore-15"].memory
TINY = [
    "--ppo.mazes=4", "--ppo.rollout=4", "--ppo.minibatches=2", "--ppo.epochs=1",
    "--evaluate-every=1", "--evaluate-walks=2", "--quiet", "--threads=1",
]  # fmt: skip


def train(folder, *more, updates=1, system="memory"):
    words = ["train", "explore-15", f"--folder={folder}", f"--system={system}"]
    return main([*words, f"--max-updates={updates}", *TINY, *more])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert train(folder) == 0
    return folder


def test_training_leaves_weights_a_checkpoint_a_log_and_goes_on_from_there(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"best.safetensors", "log.jsonl"} <= names
    assert train(trained, updates=2) == 0
    content, _ = checkpoint.newest(trained)
    assert content["learner"]["done"] == 2
    assert len(content["progress"]["curve"]) == 2
    lines = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert {"reward_per_step", "entropy"} <= lines[0].keys()
    assert {"valid/coverage", "valid/f", "valid/localization_loss"} <= lines[1].keys()


def test_evaluation_puts_an_agent_beside_the_rules_and_records_them(trained, tmp_path, capsys):
    words = ["explore", "evaluate", "explore-15", str(trained), "--walks=2", "--record"]
    assert main([*words, f"--results={tmp_path}", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "paper: F 0.9286" in said
    found = load_walk_records("explore-15", tmp_path)
    assert {record.walker for record in found} == {"memory", *RULES}
    assert found[0].walker == "frontier"
    assert walk_table(found) in said
    learned = next(record for record in found if record.walker == "memory")
    assert learned.parameters > 0
    assert learned.command is not None
    assert learned.command.startswith("mgmem train explore-15")
    assert str(trained) not in learned.command
    curve = np.array(learned.coverage)
    assert curve.shape == (101, 4)
    assert curve[[0, -1], 0].tolist() == [0, 300]
    assert curve[-1, 1] == pytest.approx(learned.estimate("coverage").value, abs=1e-4)
    page = tmp_path / "page.md"
    page.write_text(f"{START}\n{END}\n")
    report = ["report", "explore", f"--page={page}", f"--results={tmp_path}"]
    assert main([*report, "--check"]) == 2
    assert main(report) == 0
    assert main([*report, "--check"]) == 0
    assert walk_table(found) in page.read_text()
    assert learned.command in page.read_text()
    save_figure(draw_company("explore-15", found), tmp_path / "company.png")
    save_figure(draw_learning("explore-15", learned.curve), tmp_path / "learning.png")


def test_the_page_shows_the_recorded_walks():
    check_between(PAGE, explore_tables.section(), "explore")


def test_a_recorded_agent_is_published_and_then_evaluated_by_name(
    trained, tmp_path, monkeypatch, capsys
):
    shipped = records.weights_folder
    folder = tmp_path / "weights"
    folder.mkdir()
    memory = shipped() / f"{MEMORY}.safetensors"
    (folder / memory.name).write_bytes(memory.read_bytes())
    monkeypatch.setattr(records, "weights_folder", lambda: folder)
    words = ["explore", "evaluate", "explore-15", "--no-rules", "--walks=2", "--quiet"]
    writing = ["--record", "--publish", f"--results={tmp_path}"]
    assert main([*words, str(trained), *writing]) == 2
    assert "1,000 walks or more" in capsys.readouterr().err
    assert main([*words, "--publish"]) == 2
    assert "needs a run folder" in capsys.readouterr().err
    monkeypatch.setattr(explore_trained, "_ENOUGH_WALKS", 2)
    assert main([*words, str(trained), *writing]) == 0
    first = capsys.readouterr().out
    assert "published as explore-15.safetensors" in first
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[0] == first.splitlines()[0]


def test_a_walk_can_be_seen(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("mgmem.report.explore_walk._MOST_FRAMES", 3)
    words = ["explore", "show", "explore-15", str(trained), "--no-records", f"--out={tmp_path}"]
    assert main(words) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "explore-15-walk0.gif",
        "explore-15-learning.png",
    }


def test_speed_is_measured_for_the_environment_and_for_every_system(capsys):
    assert main(["explore", "speed", "explore-15", "--seconds=0.01", "--threads=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(SYSTEMS)
    assert all(line.endswith(" steps/s") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explore"], "say one of evaluate, show, speed"),
        (["train", "explore-16"], "did you mean 'explore-15'"),
        (["train", "explore-15", "--memory", "nowhere"], "no experiment 'nowhere'"),
        (["train", "explore-15", "--memory", "sort-20"], "no multigrid memory of a map"),
        (["explore", "evaluate", "explore-15", "--walks", "1"], "at least 2"),
        (["explore", "evaluate", "explore-15", "nowhere"], "no run folder"),
        (["explore", "show", "explore-15", "nowhere"], "no run folder"),
    ],
)
def test_what_can_not_be_is_one_clear_sentence(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_memory_must_be_shipped_before_an_agent_can_have_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mgmem.experiments.trained.shipped_weights", lambda name: None)
    assert main(["train", "explore-25", "--memory", "mapping-25-random"]) == 2
    assert "no weights are shipped for mapping-25-random" in capsys.readouterr().err


def test_weights_of_another_memory_are_refused(trained, capsys):
    words = ["explore", "evaluate", "explore-15", str(trained), "--memory", "mapping-15-small"]
    assert main(words) == 2
    assert f"was trained on the memory of {MEMORY}" in capsys.readouterr().err


def test_an_agent_that_looks_at_no_memory_walks_beside_any(tmp_path):
    assert train(tmp_path, system="reactive") == 0
    words = ["explore", "evaluate", "explore-15", str(tmp_path), "--memory", "mapping-15-small"]
    assert main([*words, "--no-rules", "--walks=2", "--quiet"]) == 0
