"""Every command does its real work, for a moment."""

import dataclasses
import json
import os
import shlex
from pathlib import Path

import pytest

import mgmem
from mgmem.bench.measure import multiply_adds
from mgmem.cli import main
from mgmem.cli.train import parse
from mgmem.experiments import find, records, scored
from mgmem.experiments.records import Record, load_records
from mgmem.experiments.trained import locate
from mgmem.training.checkpoint import newest
from mgmem.training.weights import load_weights, save_weights

QUICK = [
    "--threads", "1", "--quiet", "--reach.updates", "2", "--reach.batch", "4",
    "--reach.validation.every", "2", "--reach.validation.episodes", "4",
    "--learn.updates", "1", "--learn.validation.episodes", "4",
    "--finish.updates", "1", "--finish.validation.episodes", "4",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "mapping-9"
    assert main(["train", "mapping-9", "--folder", str(folder), *QUICK]) == 0
    return folder


def test_train_leaves_checkpoint_best_weights_log_and_events(run_folder):
    names = {path.name for path in run_folder.iterdir()}
    assert {"checkpoint-4.ckpt", "best.safetensors", "log.jsonl", "tensorboard"} <= names


def test_train_goes_on_with_the_same_command(tmp_path):
    arguments = ["train", "mapping-9", "--folder", str(tmp_path), *QUICK]
    assert main([*arguments, "--max-updates", "2"]) == 0
    assert newest(tmp_path)[0]["progress"]["updates"] == 2
    assert main(arguments) == 0
    assert newest(tmp_path)[0]["progress"]["updates"] == 3
    assert newest(tmp_path)[0]["stage"]["update"] == 1


def test_options_may_stand_before_the_name():
    options, recipe = parse(["--seed", "3", "mapping-9", "--learn.rate.peak", "0.1"])
    assert (options.name, options.seed) == ("mapping-9", 3)
    assert [stage.rate.peak for stage in recipe.stages] == [0.005, 0.1, 0.005]


def test_a_setting_that_a_stage_does_not_have_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "mapping-9", "--learn.optimizer.momentum", "0.9"])
    assert ended.value.code == 2
    assert "--learn.optimizer.momentum" in capsys.readouterr().err


def test_a_recipe_starts_from_the_weights_it_names_and_counts_what_they_took(tmp_path):
    find("mapping-25-small")  # starts from mapping-15-small
    quick = ["--learn.validation.episodes", "2", "--learn.batch", "4", "--learn.lesson.chunk", "20"]
    quick += ["--threads", "1", "--quiet"]
    arguments = ["train", "mapping-25-small", "--folder", str(tmp_path), *quick]
    assert main([*arguments, "--learn.updates", "1", "--max-updates", "1"]) == 0
    shipped = load_weights(locate("mapping-15-small"))
    took = load_weights(tmp_path / "best.safetensors").about["trained"]
    assert took["updates"] == shipped.about["trained"]["updates"] + 1
    other = ["--start.sha256", "0" * 64]
    assert main([*arguments, *other, "--folder", str(tmp_path / "other")]) == 2


def test_loading_gives_model_task_experiment_and_record(run_folder):
    trained = mgmem.load("mapping-15-small")
    assert trained.experiment.name == "mapping-15-small"
    assert trained.record.estimate().value > 0.99
    assert trained.record.weights == trained.sha256
    assert not trained.model.training
    ours = mgmem.load(run_folder)
    assert ours.record is None
    assert ours.about["trained"]["updates"] in (2, 3, 4)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of shipped weights that a test may write to."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setattr(records, "weights_folder", lambda: folder)
    return folder


def test_what_is_published_is_recorded_scored_enough_and_not_worse(
    run_folder, tmp_path, capsys, shipped, monkeypatch
):
    monkeypatch.setattr(scored, "_ENOUGH_EPISODES", 6)
    results = ["--results", str(tmp_path / "results"), "--quiet"]
    publish = ["evaluate", str(run_folder), "--publish", *results]
    assert main([*publish, "--episodes", "4"]) == 2
    assert "4 episodes are few" in capsys.readouterr().err
    assert main([*publish, "--episodes", "6"]) == 2
    assert "add --record" in capsys.readouterr().err
    assert main([*publish, "--episodes", "6", "--record"]) == 0
    published = shipped / "mapping-9.safetensors"
    assert "trained" in load_weights(published).about
    (record,) = load_records(tmp_path / "results")
    better = dataclasses.replace(record, seed=1, metrics={"f": dict(value=1.0, low=1.0, high=1.0)})
    trained = load_weights(published)
    better = dataclasses.replace(
        better, weights=save_weights(published, trained.tensors, {**trained.about, "seed": 1})
    )
    better.write(tmp_path / "results")
    assert main([*publish, "--episodes", "6"]) == 2
    assert "shipped weights are better" in capsys.readouterr().err
    assert main([*publish, "--episodes", "6", "--force"]) == 0
    monkeypatch.setattr(records, "in_repository", lambda: False)
    assert main([*publish, "--episodes", "6", "--force"]) == 2
    assert "installed package" in capsys.readouterr().err


def test_evaluate_prints_each_metric_with_its_interval(run_folder, capsys):
    assert main(["evaluate", str(run_folder), "--episodes", "6", "--quiet"]) == 0
    printed = capsys.readouterr().out
    for metric in ("precision", "recall", "f "):
        assert metric in printed
    assert "[" in printed


@pytest.mark.parametrize(
    ("by", "shown"),
    [
        ("patch", ["patches by how often asked", "2 to 10"]),
        ("age", ["asked after step", "49"]),
        ("distance", ["cells from the start", "marks"]),
    ],
)
def test_evaluate_scores_a_map_in_parts(run_folder, capsys, by, shown):
    assert main(["evaluate", str(run_folder), "--episodes", "6", "--quiet", "--by", by]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in shown)
    assert main(["evaluate", "recall-10", "--by", by]) == 2
    assert "not for recall" in capsys.readouterr().err


def test_evaluate_tries_weights_on_another_task(run_folder, capsys):
    walk = ["--task", "motion=random", "path_length=20"]
    assert main(["evaluate", str(run_folder), "--episodes", "4", "--quiet", *walk]) == 0
    assert "motion=random path_length=20" in capsys.readouterr().out
    assert main(["evaluate", str(run_folder), "--record", *walk]) == 2
    assert "leave --task out" in capsys.readouterr().err


def test_evaluate_scores_the_episodes_of_training_but_records_only_tests(run_folder, capsys):
    figures = []
    for split in ("test", "train"):
        arguments = ["evaluate", str(run_folder), "--episodes", "4", "--quiet", "--split", split]
        assert main(arguments) == 0
        figures.append(capsys.readouterr().out)
    assert figures[0] != figures[1]
    assert main([*arguments, "--publish"]) == 2
    assert "leave --split out" in capsys.readouterr().err


def test_evaluate_tells_close_from_distant_priorities(capsys):
    assert main(["evaluate", "sort-20", "--episodes", "20", "--quiet", "--by", "gap"]) == 0
    printed = capsys.readouterr().out
    assert "nearest priority" in printed
    # Priorities reach from -4 to 4 there: up to 8 apart.
    assert "0.320 to 8.000" in printed
    assert main(["evaluate", "recall-10", "--by", "gap"]) == 2
    assert "not for recall" in capsys.readouterr().err


def test_evaluate_tells_what_came_first_from_what_came_last(capsys):
    assert main(["evaluate", "recall-10", "--episodes", "200", "--quiet", "--by", "place"]) == 0
    printed = capsys.readouterr().out
    assert "item named" in printed
    assert [line.split()[0] for line in printed.splitlines()[-9:]] == list("123456789")
    assert main(["evaluate", "sort-20", "--by", "place"]) == 2
    assert "not for sort; there is gap" in capsys.readouterr().err


def test_evaluate_gives_the_same_figures_every_time(run_folder, capsys):
    arguments = ["evaluate", str(run_folder / "best.safetensors"), "--episodes", "6", "--quiet"]
    main(arguments)
    first = capsys.readouterr().out
    main(arguments)
    assert capsys.readouterr().out == first


def test_published_half_precision_weights_score_as_printed(run_folder, capsys, shipped):
    short = ["--episodes", "6", "--quiet"]
    assert main(["evaluate", str(run_folder), "--half", "--publish", "--force", *short]) == 0
    printed = capsys.readouterr().out.splitlines()
    published = shipped / "mapping-9.safetensors"
    assert published.stat().st_size < 0.6 * (run_folder / "best.safetensors").stat().st_size
    assert main(["evaluate", str(published), *short]) == 0
    assert capsys.readouterr().out.splitlines() == printed[:-1]


def test_a_record_holds_command_seed_budget_curve_and_metrics(run_folder, tmp_path, capsys):
    arguments = ["evaluate", str(run_folder), "--episodes", "6", "--quiet"]
    assert main([*arguments, "--record", "--results", str(tmp_path)]) == 0
    (record,) = load_records(tmp_path)
    assert isinstance(record, Record)
    (command,) = record.commands
    assert command == shlex.join(["mgmem", "train", "mapping-9", *QUICK[3:]])
    assert record.settings == parse(shlex.split(command)[2:])[1].plain()
    assert (record.experiment, record.updates, record.episodes) == ("mapping-9", 4, 6)
    assert [point["update"] for point in record.curve] == [2, 3, 4]
    assert record.metrics["f"].keys() == {"value", "low", "high"}
    assert record.parameters == 95_921
    assert record.steps_to(0.0) == record.curve[0]["steps"]
    assert record.steps_to(1.1) is None


def test_the_record_of_a_stopped_run_says_how_far_it_went(tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", "mapping-9", "--folder", str(folder), *QUICK]
    assert main([*arguments, "--max-updates", "2"]) == 0
    arguments = ["evaluate", str(folder), "--episodes", "6", "--quiet", "--record"]
    assert main([*arguments, "--results", str(tmp_path / "results")]) == 0
    (record,) = load_records(tmp_path / "results")
    assert record.updates == 2
    assert record.commands[0].endswith("--max-updates 2")


def test_a_record_needs_a_run(run_folder, capsys):
    weights = str(run_folder / "best.safetensors")
    assert main(["evaluate", weights, "--episodes", "4", "--quiet", "--record"]) == 2
    assert "run folder" in capsys.readouterr().err


def test_bench_train_compares_backends_in_one_run(tmp_path, capsys):
    out = tmp_path / "train.json"
    arguments = ["bench", "train", "mapping-9", "--backends", "scan", "reference"]
    arguments += ["--repeats", "1", "--batch", "2", "--queries", "2", "--out", str(out)]
    assert main(arguments) == 0
    (measured,) = json.loads(out.read_text())["measured"]
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
    arguments = ["bench", "scaling", "--cells", "1000", "2000", "--dnc-cells", "1000", "2000"]
    arguments += ["--repeats", "1", "--out", str(out), "--figure", str(figure)]
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


def test_describe_draws_an_experiment_s_networks_and_its_row(capsys):
    for name in ("mapping-15-small", "sort-20", "recall-10-dnc"):
        assert main(["describe", name]) == 0
        printed = capsys.readouterr().out
        assert "paper, Table" in printed
        assert "24x24" in printed or "DNC" in printed
