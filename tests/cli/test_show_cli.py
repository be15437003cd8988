"""show, demo, report and export from the command line, on untrained weights."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from mgmem.cli import demo, main, show
from mgmem.experiments import find
from mgmem.experiments import records as rec
from mgmem.report import map_probe, map_view
from mgmem.training.weights import save_weights


def weights_of(name, folder, **task):
    _, model = find(name).build(options=task)
    path = folder / f"{name}.safetensors"
    about = {"experiment": name, "recipe": "fast", "seed": 0}
    save_weights(path, model.state_dict(), {**about, "task": task} if task else about)
    return path


@pytest.fixture
def mapping9(tmp_path):
    return weights_of("mapping-9", tmp_path)


@pytest.fixture(autouse=True)
def _quick_views(monkeypatch):
    """Views chosen on few episodes: what is drawn matters here, not how much it tells."""
    few = partial(map_view.choose_view, episodes=2)
    for module in (map_view, show):
        monkeypatch.setattr(module, "choose_view", few)
    monkeypatch.setattr(demo, "_FRAMES", 2)


def written(folder):
    return sorted(path.name for path in folder.iterdir())


def refused(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 2
    return capsys.readouterr().err


def test_show_writes_pictures_and_an_animation_and_says_where(
    mapping9, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(show, "_MOST_FRAMES", 2)
    monkeypatch.setattr(show, "_STRIP", 2)
    out = tmp_path / "figures"
    arguments = ["--episode", "2", "--format", "gif", "--out", str(out)]
    assert main(["show", str(mapping9), *arguments]) == 0
    names = [
        "mapping-9-episode2-steps.png",
        "mapping-9-episode2.gif",
        "mapping-9-episode2.png",
    ]
    assert written(out) == names
    said = capsys.readouterr().out
    for name in names:
        assert f"written to {out / name}" in said
        with Image.open(out / name) as image:
            image.load()
            assert np.asarray(image.convert("L")).std() > 20
    with Image.open(out / "mapping-9-episode2.gif") as gif:
        assert gif.n_frames == 2


@pytest.mark.parametrize(("program", "kind"), [(None, "gif"), ("ffmpeg", "mp4")])
def test_show_writes_a_film_where_it_can(mapping9, tmp_path, monkeypatch, program, kind):
    from mgmem.report import animation, style

    made = []
    monkeypatch.setattr(style, "save_figure", lambda figure, path: path)  # other tests' matter
    monkeypatch.setattr(animation, "ffmpeg", lambda: program)
    monkeypatch.setattr(animation, "animate", lambda *given: made.append(given) or given[1])
    out = str(tmp_path / "figures")
    assert main(["show", str(mapping9), "--mean", "--steps", "20", "--out", out]) == 0
    ((history, path),) = made
    assert path.suffix == f".{kind}"
    assert [moment.step for moment in history.moments] == list(range(49))


def test_evaluate_measures_the_map(mapping9, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(map_probe, "_MOMENTS", 1)
    assert main(["evaluate", str(mapping9), "--map", "--episodes", "2", "--quiet"]) == 0
    said = capsys.readouterr().out
    for view in ("its place alone", "h, mean", "linear probe, 3x3", "the reader, asked for every"):
        assert view in said
    recall = weights_of("recall-10", tmp_path)
    assert "has no map" in refused(
        capsys, "evaluate", recall, "--map", "--episodes", "2", "--quiet"
    )


def test_show_takes_a_run_folder_and_chosen_steps(mapping9, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    mapping9.rename(run / "best.safetensors")
    out = tmp_path / "figures"
    more = ["--steps", "1", "20", "--mean", "--no-animation", "--out", str(out)]
    assert main(["show", str(run), *more]) == 0
    assert written(out) == ["mapping-9-episode0-steps.png", "mapping-9-episode0.png"]


def test_show_draws_the_matrix_of_a_dnc(tmp_path):
    path, out = weights_of("mapping-15-dnc", tmp_path, path_length="16"), tmp_path / "figures"
    arguments = ["--steps", "12", "--no-animation", "--out", str(out)]
    assert main(["show", str(path), *arguments]) == 0
    assert "mapping-15-dnc-episode0-memory.png" in written(out)


def test_show_draws_the_answer_to_a_sequence(tmp_path):
    path, out = weights_of("recall-10", tmp_path), tmp_path / "figures"
    assert main(["show", str(path), "--out", str(out)]) == 0
    assert written(out) == ["recall-10-episode0.png"]


def test_show_refuses_what_can_not_be_shown(mapping9, tmp_path, capsys):
    assert "steps 1 to 49" in refused(capsys, "show", mapping9, "--steps", "50")
    assert "numbered from 0" in refused(capsys, "show", mapping9, "--episode", "-1")
    assert "did you mean" in refused(capsys, "show", "maping-9")
    recall = weights_of("recall-10", tmp_path)
    assert "leave it out" in refused(capsys, "show", recall, "--steps", "3")
    assert not (tmp_path / "figures").exists()


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder that takes the place of the package's weights."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setattr(rec, "weights_folder", lambda: folder)
    return folder


def test_demo_scores_the_shipped_memory_beside_the_paper(shipped, tmp_path, capsys):
    weights_of("mapping-15-small", shipped)
    weights_of("mapping-9", shipped)
    out = tmp_path / "figures"
    assert main(["demo", "--episodes", "2", "--quiet", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "7,992 cells and 123,273 parameters" in said
    for metric, paper in (("precision", "0.9979"), ("recall", "0.9988"), ("f ", "0.9983")):
        line = next(line for line in said.splitlines() if line.startswith(f"  {metric}"))
        assert f"paper {paper}" in line
    assert str((out / "mapping-15-small.png").resolve()) in said
    assert written(out) == ["mapping-15-small.png"]


def test_demo_falls_back_to_the_smallest_mapping_memory(shipped, tmp_path, capsys):
    weights_of("mapping-9", shipped)
    assert main(["demo", "--episodes", "2", "--quiet", "--out", str(tmp_path / "figures")]) == 0
    assert "mapping-9" in capsys.readouterr().out
    assert written(tmp_path / "figures") == ["mapping-9.png"]


def test_demo_without_weights_says_how_to_make_some(shipped, capsys):
    assert "mgmem train mapping-9" in refused(capsys, "demo")
    assert "at least 2" in refused(capsys, "demo", "--episodes", "1")


def test_report_curves_and_routing_write_figures(tmp_path, capsys):
    folder = tmp_path / "results" / "mapping-9"
    folder.mkdir(parents=True)
    point = {"update": 1, "steps": 10, "seconds": 3.0, "f": 0.5}
    content = {
        "schema": 2, "experiment": "mapping-9", "recipe": "fast", "seed": 0, "commands": [""],
        "settings": {}, "weights": "", "metric": "f", "higher_is_better": True,
        "commit": "", "date": "2020-07-12", "machine": "", "parameters": 1, "cells": 1,
        "updates": 1, "steps": 10, "seconds": 3.0, "curve": [point], "episodes": 2,
        "metrics": {"f": {"value": 0.5, "low": 0.4, "high": 0.6}},
    }  # fmt: skip
    (folder / "fast-seed0.json").write_text(json.dumps(content))
    out = tmp_path / "figures"
    results = ["--results", str(tmp_path / "results")]
    assert main(["report", "curves", "--out", str(out), *results]) == 0
    assert main(["report", "routing", "--out", str(out)]) == 0
    assert written(out) == ["learning-curves.png", "routing.png"]
    (folder / "fast-seed0.json").unlink()
    assert "no record has a learning curve" in refused(capsys, "report", "curves", *results)


@pytest.mark.xdist_group("export")
def test_export_writes_a_program_that_steps_like_the_memory(mapping9, tmp_path, capsys):
    out = tmp_path / "new" / "step.pt2"
    assert main(["export", str(mapping9), "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().out
    _, model = find("mapping-9").build()
    memory = model.memory.eval()
    x, state = torch.rand(1, 4, 3, 3), memory.initial_state(1)
    with torch.no_grad():
        _, expected = memory.step(x, state)
        tensors = {name.replace(".", "_"): tensor for name, tensor in state.tensors().items()}
        results = torch.export.load(out).module()(x=x, **tensors)
    for name, tensor in expected.tensors().items():
        torch.testing.assert_close(results[f"new_{name.replace('.', '_')}"], tensor)


def test_export_refuses_what_has_no_step_to_export(mapping9, tmp_path, capsys):
    assert ".onnx or .pt2" in refused(capsys, "export", mapping9, "--out", tmp_path / "step.txt")
    out = tmp_path / "step.pt2"
    assert "give 1 to" in refused(capsys, "export", mapping9, "--out", out, "--batch", "0")
    lstm = weights_of("recall-10-lstm", tmp_path)
    assert "no multigrid memory" in refused(capsys, "export", lstm, "--out", out)
    assert not out.exists()
