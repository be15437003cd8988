"""The loop: stops when told, keeps the best, never leaves a broken run behind."""

import errno
import json
from contextlib import ExitStack

import pytest
import torch

from mgmem.experiments import find
from mgmem.training import checkpoint, loop
from mgmem.training.loop import Limits, Trainer, TrainingFailed
from mgmem.training.progress import Reporter
from mgmem.training.recipe import Recipe
from mgmem.training.weights import fill, load_weights

RECIPE = Recipe(
    updates=6,
    batch=4,
    groups=2,
    chunk=6,
    horizon=6,
    evaluate_every=3,
    evaluate_episodes=4,
    average=0.9,
)
ABOUT = {"experiment": "mapping-9", "recipe": "fast", "seed": 0}


@pytest.fixture
def trainer():
    """Makes trainers, and closes their logs at the end."""
    with ExitStack() as stack:

        def make(folder, recipe=RECIPE, name="mapping-9"):
            folder.mkdir(exist_ok=True)
            task, model = find(name).build()
            reporter = stack.enter_context(Reporter(folder, name, recipe.updates, quiet=True))
            return Trainer(model, task, recipe, folder, ABOUT, reporter=reporter)

        yield make


@pytest.mark.parametrize("name", ["recall-10", "sort-20", "recall-10-dnc", "mapping-15-lstm"])
def test_one_loop_trains_every_kind_of_task_and_model(trainer, tmp_path, name):
    run = trainer(tmp_path, name=name)
    before = {n: t.clone() for n, t in run.model.state_dict().items()}
    progress = run.run(Limits(max_updates=3))
    assert progress.update == 3
    assert any(not torch.equal(t, before[n]) for n, t in run.model.state_dict().items())


def test_the_best_weights_are_the_averaged_ones_and_load_into_a_fresh_model(trainer, tmp_path):
    run = trainer(tmp_path)
    progress = run.run(Limits(max_updates=3))
    assert [point["update"] for point in progress.curve] == [3]
    weights, about = load_weights(tmp_path / "best.safetensors")
    assert about == ABOUT
    for name, tensor in run.weights().items():
        assert torch.equal(weights[name], tensor)
    _, fresh = find("mapping-9").build(seed=9)
    fill(fresh, weights, "best")


def test_evaluation_leaves_training_as_it_was(trainer, tmp_path):
    often = trainer(tmp_path / "often", Recipe(**{**vars(RECIPE), "evaluate_every": 1}))
    often.run(Limits())
    never = trainer(tmp_path / "never", Recipe(**{**vars(RECIPE), "evaluate_every": 100}))
    never.run(Limits())
    for name, tensor in often.model.state_dict().items():
        assert torch.equal(tensor, never.model.state_dict()[name])


def test_it_stops_once_the_validation_metric_is_good_enough(trainer, tmp_path):
    assert trainer(tmp_path).run(Limits(until=0.0)).update == 3


def test_it_stops_when_the_minutes_are_over(trainer, tmp_path):
    assert trainer(tmp_path).run(Limits(max_minutes=0.0)).update == 1


def test_the_log_holds_every_evaluation(trainer, tmp_path):
    trainer(tmp_path).run(Limits())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [3, 6]
    assert {"loss", "f", "precision", "recall", "seconds", "steps"} <= lines[0].keys()


def test_a_loss_that_is_not_finite_stops_and_leaves_the_last_checkpoint_whole(trainer, tmp_path):
    run = trainer(tmp_path)
    run.run(Limits(max_updates=2))
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingFailed, match="update 2"):
        run._update()
    content, complaints = checkpoint.newest(tmp_path)
    assert content["progress"]["update"] == 2
    assert complaints == []
    assert all(torch.isfinite(t).all() for t in content["model"].values())


def test_a_full_disk_stops_and_leaves_the_checkpoint_before_whole(trainer, tmp_path, monkeypatch):
    trainer(tmp_path).run(Limits(max_updates=2))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loop.checkpoint, "write_atomically", full)
    with pytest.raises(TrainingFailed, match="No space left"):
        trainer(tmp_path).run(Limits())
    monkeypatch.undo()
    content, _ = checkpoint.newest(tmp_path)
    assert content["progress"]["update"] == 2
