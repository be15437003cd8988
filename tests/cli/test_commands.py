"""Every command does its real work, for a moment."""

import json
import os
from pathlib import Path

import pytest
import torch

from mgmem.bench.measure import multiply_adds
from mgmem.cli import main
from mgmem.experiments import find, records
from mgmem.experiments.records import Record, load_records
from mgmem.training.checkpoint import newest
from mgmem.training.weights import load_weights

QUICK = [
    "--batch", "4", "--groups", "2", "--chunk", "6", "--horizon", "6", "--evaluate-every", "2",
    "--evaluate-episodes", "4", "--threads", "1", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "mapping-9"
    assert main(["train", "mapping-9", "--folder", str(folder), "--updates", "4", *QUICK]) == 0
    return folder


def test_train_leaves_checkpoint_best_weights_log_and_events(run_folder):
    names = {path.name for path in run_folder.iterdir()}
    assert {"checkpoint-4.ckpt", "best.safetensors", "log.jsonl", "tensorboard"} <= names


def test_train_goes_on_with_the_same_command(run_folder, tmp_path):
    arguments = ["train", "mapping-9", "--folder", str(tmp_path), "--updates", "4", *QUICK]
    assert main([*arguments, "--max-updates", "2"]) == 0
    assert newest(tmp_path)[0]["progress"]["update"] == 2
    assert main(arguments) == 0
    assert newest(tmp_path)[0]["progress"]["update"] == 4


def test_training_can_start_from_trained_weights_and_counts_on(run_folder, tmp_path):
    more = ["train", "mapping-9", "--updates", "2", *QUICK, "--lr", "1e-9", "--average", "0"]
    folder = tmp_path / "more"
    assert main([*more, "--start", str(run_folder), "--folder", str(folder)]) == 0
    old, new = newest(run_folder)[0], newest(folder)[0]
    *earlier_points, point = new["progress"]["curve"]
    assert earlier_points == old["progress"]["curve"]
    assert point["update"] == 4 + 2
    assert point["steps"] == old["feed"]["steps"] + new["feed"]["steps"]
    # Points are rounded to tenths of a second, and two updates may take less.
    assert point["seconds"] >= round(old["progress"]["seconds"], 1)
    kept = load_weights(run_folder / "best.safetensors")[0]
    for name, weight in load_weights(folder / "best.safetensors")[0].items():
        torch.testing.assert_close(weight, kept[name], atol=1e-6, rtol=0)
    arguments = ["evaluate", str(folder), "--episodes", "6", "--quiet", "--record"]
    assert main([*arguments, "--results", str(tmp_path / "results")]) == 0
    (record,) = load_records(tmp_path / "results")
    assert record.updates == 4 + 2
    assert "--start runs/mapping-9 " in record.command
    assert [point["update"] for point in record.curve] == [2, 4, 6]
    (earlier,) = record.earlier
    for name in old["recipe"]:
        flag = name.replace("_", "-")
        assert f"--{flag} " in earlier or f"--no-{flag} " in earlier
    assert earlier.endswith("--folder runs/mapping-9")


def test_published_weights_say_what_they_took_and_others_can_not_be_started_from(
    run_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(records, "weights_folder", lambda: tmp_path / "weights")
    assert main(["evaluate", str(run_folder), "--publish", "--episodes", "6", "--quiet"]) == 0
    published = tmp_path / "weights" / "mapping-9.safetensors"
    assert load_weights(published)[1]["trained"]["updates"] == 4
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes((run_folder / "best.safetensors").read_bytes())
    arguments = ["train", "mapping-9", "--start", str(alone), "--folder", str(tmp_path / "run")]
    assert main([*arguments, *QUICK]) == 2
    assert "how long it was trained" in capsys.readouterr().err


def test_evaluate_prints_each_metric_with_its_interval(run_folder, capsys):
    assert main(["evaluate", str(run_folder), "--episodes", "6", "--quiet"]) == 0
    printed = capsys.readouterr().out
    for metric in ("precision", "recall", "f "):
        assert metric in printed
    assert "[" in printed


def test_evaluate_tells_common_from_rare_patches(run_folder, capsys):
    assert main(["evaluate", str(run_folder), "--episodes", "6", "--quiet", "--patches"]) == 0
    printed = capsys.readouterr().out
    assert "patches by how often asked" in printed
    assert "2 to 10" in printed
    assert main(["evaluate", "recall-10", "--patches"]) == 2
    assert "asks for no patches" in capsys.readouterr().err


def test_evaluate_tells_close_from_distant_priorities(capsys):
    assert main(["evaluate", "sort-20", "--episodes", "20", "--quiet", "--gaps"]) == 0
    printed = capsys.readouterr().out
    assert "nearest priority" in printed
    # Priorities reach from -4 to 4 there: up to 8 apart.
    assert "0.320 to 8.000" in printed
    assert main(["evaluate", "recall-10", "--gaps"]) == 2
    assert "has no priorities" in capsys.readouterr().err


def test_evaluate_gives_the_same_figures_every_time(run_folder, capsys):
    arguments = ["evaluate", str(run_folder / "best.safetensors"), "--episodes", "6", "--quiet"]
    main(arguments)
    first = capsys.readouterr().out
    main(arguments)
    assert capsys.readouterr().out == first


def test_published_half_precision_weights_score_as_printed(
    run_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(records, "weights_folder", lambda: tmp_path / "weights")
    short = ["--episodes", "6", "--quiet"]
    assert main(["evaluate", str(run_folder), "--half", "--publish", *short]) == 0
    printed = capsys.readouterr().out.splitlines()
    published = tmp_path / "weights" / "mapping-9.safetensors"
    assert published.stat().st_size < 0.6 * (run_folder / "best.safetensors").stat().st_size
    assert main(["evaluate", str(published), *short]) == 0
    assert capsys.readouterr().out.splitlines() == printed[:-1]


def test_a_record_holds_command_seed_budget_curve_and_metrics(run_folder, tmp_path, capsys):
    arguments = ["evaluate", str(run_folder), "--episodes", "6", "--quiet"]
    assert main([*arguments, "--record", "--results", str(tmp_path)]) == 0
    (record,) = load_records(tmp_path)
    assert isinstance(record, Record)
    assert record.command.startswith("mgmem train mapping-9 --recipe fast --seed 0 --updates 4")
    assert (record.experiment, record.updates, record.episodes) == ("mapping-9", 4, 6)
    assert [point["update"] for point in record.curve] == [2, 4]
    assert record.metrics["f"].keys() == {"value", "low", "high"}
    assert record.parameters == 95_921
    assert record.steps_to("f", 0.0) == record.curve[0]["steps"]
    assert record.steps_to("f", 1.1) is None


def test_the_record_of_a_stopped_run_says_how_far_it_went(tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "mapping-9", "--folder", str(folder), "--updates", "9", *QUICK]
    assert main([*arguments, "--max-updates", "2"]) == 0
    arguments = ["evaluate", str(folder), "--episodes", "6", "--quiet", "--record"]
    assert main([*arguments, "--results", str(tmp_path / "results")]) == 0
    (record,) = load_records(tmp_path / "results")
    assert record.updates == 2
    assert record.command.endswith("--max-updates 2")


def test_a_record_needs_a_run(run_folder, capsys):
    weights = str(run_folder / "best.safetensors")
    assert main(["evaluate", weights, "--episodes", "4", "--quiet", "--record"]) == 2
    assert "run folder" in capsys.readouterr().err


def test_bench_train_compares_backends_in_one_run(tmp_path, capsys):
    out = tmp_path / "train.json"
    arguments = ["bench", "train", "mapping-9", "--backends", "scan", "reference"]
    assert main([*arguments, "--repeats", "1", "--batch", "4", "--out", str(out)]) == 0
    measured = json.loads(out.read_text())["measured"][0]
    assert measured["backends"].keys() == {"scan", "reference"}
    row = measured["backends"]["scan"]
    assert row["share_of_matrix_product"] > 0
    assert sum(row["shares"].values()) == pytest.approx(1)
    assert set(row["shares"]) == {
        "input convolution", "recurrence", "reader", "optimiser", "data",
    }  # fmt: skip


def test_bench_step_and_scaling_write_json_and_a_figure(tmp_path, capsys):
    out = tmp_path / "step.json"
    assert main(["bench", "step", "mapping-9", "--repeats", "2", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["measured"]["models"]["mapping-9"]["seconds"] > 0
    figure, out = tmp_path / "scaling.png", tmp_path / "scaling.json"
    arguments = ["bench", "scaling", "--cells", "1000", "4000", "--dnc-cells", "1000", "2000"]
    arguments += ["--repeats", "3", "--out", str(out), "--figure", str(figure)]
    assert main(arguments) == 0
    rows = json.loads(out.read_text())["measured"]["rows"]
    assert {row["system"] for row in rows} == {"multigrid", "dnc"}
    assert figure.stat().st_size > 1000


def test_work_is_counted_from_the_specification():
    _, model = find("mapping-15-small").build()
    assert multiply_adds(model, 1, 0) == 3_623_616
    assert multiply_adds(model, 0, 1) == 19_576_080
    _, model = find("sort-20").build()
    assert multiply_adds(model, 20, 20) > 40 * 3_600_000


def test_help_of_every_command_names_its_options(capsys):
    for command in ("train", "evaluate", "list", "describe", "show", "demo", "report", "export"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"mgmem {command}" in capsys.readouterr().out


def test_nothing_is_written_outside_the_folders_given(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["evaluate", str(run_folder), "--episodes", "4", "--quiet"])
    assert os.listdir(Path.cwd()) == []
