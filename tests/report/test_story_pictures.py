"""Stories as pictures, and the table of all tasks."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from making import make_record, read_image

from mgmem.cli import main
from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.experiments.records import load_records
from mgmem.model import ask
from mgmem.report import stories
from mgmem.report.stories import draw_story, section, tell
from mgmem.report.style import save_figure
from mgmem.report.tables import check_between
from mgmem.tasks import SeedStream
from mgmem.training.evaluation import TEST_SEED
from mgmem.training.weights import save_weights

pytestmark = pytest.mark.xdist_group("babi")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "questions.md"
needs_data = pytest.mark.skipif(
    not (Path(os.environ.get("MGMEM_DATA", "")) / "babi").is_dir(),
    reason="no bAbI: set MGMEM_DATA to a folder with babi/tasks_1-20_v1-2.tar.gz in it",
)


def labels(figure):
    """The words below the lowest panel."""
    return [text.get_text() for text in figure.axes[5].get_xticklabels()]


def recorded(name="babi"):
    metrics = {
        f"error/{k}": {"value": k / 100, "low": k / 200, "high": k / 50} for k in range(1, 21)
    }
    metrics |= {
        "error": {"value": 0.105, "low": 0.1, "high": 0.11},
        "failed": {"value": 15.0, "low": 12.0, "high": 17.0},
    }
    return replace(make_record(name, [0.105], metric="error"), metrics=metrics)


@needs_data
@pytest.mark.parametrize("name", ["babi", "babi-lstm"])
def test_a_story_is_told_as_the_memory_answers_it_at_once(name):
    task, model = find(name).build()
    told = tell(model, task, 300, name=name)
    episodes = task.episodes(SeedStream(TEST_SEED, "test"), 300, 1)
    batch = episodes.batch(0, episodes.length)
    with torch.no_grad():
        (logits,), _ = ask(model.eval(), batch)
    chances = logits[:, 0].softmax(1).gather(1, batch.targets[0]).squeeze(1)
    np.testing.assert_allclose(told.known[list(told.places)], chances, rtol=1e-3, atol=1e-4)
    assert len(told.words) == len(told.known) == episodes.length
    assert [told.words[place] for place in told.places] == ["-"] * len(told.places)
    positions = [len(level) for level in told.activity]
    assert positions == ([1, 2, 4, 8, 16] if name == "babi" else [])


@needs_data
def test_a_story_is_drawn_with_all_levels_and_a_long_one_is_cut(tmp_path, monkeypatch):
    """Cut after far fewer words than by default: every word is a label that takes its time."""
    task, model = find("babi").build()
    told = tell(model, task, 40)
    assert len(told.words) == 24
    whole = draw_story(told)
    assert [len(axes.images) for axes in whole.axes[:6]] == [1, 1, 1, 1, 1, 0]
    assert labels(whole) == list(told.words)
    height, width, _ = read_image(save_figure(whole, tmp_path / "whole.png")).shape
    assert height > 400
    assert width > 600
    monkeypatch.setattr(stories, "_MOST_WORDS", 9)
    cut = draw_story(told)
    assert labels(cut) == list(told.words[-9:])
    assert "its last 9 words" in cut.get_suptitle()
    assert read_image(save_figure(cut, tmp_path / "cut.png")).std() > 20
    with pytest.raises(UsageError, match="numbered from 0"):
        tell(model, task, -1)
    with pytest.raises(UsageError, match="can not be watched word by word"):
        tell(find("babi-sequence").build()[1], task, 40, name="babi-sequence")


@needs_data
def test_bench_says_how_long_an_epoch_takes(tmp_path, capsys):
    out = tmp_path / "stories.json"
    arguments = ["bench", "stories", "--lengths", "24", "47", "--repeats", "1", "--batch", "16"]
    assert main([*arguments, "--out", str(out)]) == 0
    measured = json.loads(out.read_text())["measured"]
    assert [row["steps"] for row in measured["lengths"]] == [24, 47]
    assert measured["epoch_words"] > 4_000_000
    hours = measured["epoch_words"] / measured["words_per_second"] / 3600
    assert measured["epoch_hours"] == pytest.approx(hours, rel=1e-3)
    assert "an epoch: " in capsys.readouterr().out


@needs_data
def test_show_draws_a_story(tmp_path, capsys):
    weights = tmp_path / "babi.safetensors"
    _, model = find("babi").build()
    save_weights(weights, model.state_dict(), {"experiment": "babi", "recipe": "fast", "seed": 0})
    assert main(["show", str(weights), "--episode", "7", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "babi-episode7.png").is_file()
    assert main(["show", str(weights), "--steps", "3", "--out", str(tmp_path)]) == 2
    assert "drawn whole" in capsys.readouterr().err


def test_the_table_has_every_task_beside_the_papers():
    rows = section([recorded()]).splitlines()
    assert len(rows) == 24
    assert rows[0].split("|")[2:5] == [
        " `babi` (95% interval) ", " paper's `babi` ", " paper's `babi-dnc` ",
    ]  # fmt: skip
    assert rows[3] == "| 2 two supporting facts | **2.0** [1.0, 4.0] | 27.4 | 39.2 |"
    assert rows[-2] == "| mean error | **10.5** [10.0, 11.0] | 9.2 | 16.7 |"
    assert rows[-1] == "| failed tasks (> 5%) | **15** [12, 17] | 5.4 | 11.2 |"
    assert len(section([recorded(), recorded("babi-dnc")]).splitlines()) == 49
    assert section([make_record("mapping-9", [0.9])]) == ""


def test_the_page_shows_what_is_recorded():
    check_between(PAGE, section(load_records()), "stories")


def test_the_command_renews_the_page(tmp_path, capsys):
    results, page = tmp_path / "results", tmp_path / "page.md"
    recorded().write(results)
    page.write_text("before\n<!-- results:start -->\n<!-- results:end -->\nafter\n")
    arguments = ["report", "stories", "--page", str(page), "--results", str(results)]
    assert main([*arguments, "--check"]) == 2
    assert "`mgmem report stories` renews it" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "two supporting facts" in page.read_text()
    assert main([*arguments, "--check"]) == 0
