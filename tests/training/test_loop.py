"""The loop: stops when told, keeps the best, never leaves a broken run behind."""

import errno
import json
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from runs import assert_identical, final

from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.tasks import SeedStream
from mgmem.training import checkpoint, loop
from mgmem.training.feed import Growth, Share
from mgmem.training.loop import Limits, Trainer
from mgmem.training.optim import AdamW
from mgmem.training.progress import Reporter
from mgmem.training.recipe import Recipe, Stage, Validation
from mgmem.training.sequences import Sequences
from mgmem.training.stage import TrainingFailed
from mgmem.training.walks import Walks
from mgmem.training.weights import fill, load_weights

STAGE = Stage(
    "one",
    Walks(chunk=6, groups=2, growth=Growth(6)),
    AdamW(),
    updates=6,
    batch=4,
    average=0.9,
    validation=Validation(3, 4),
)
RECIPE = Recipe((STAGE,))
ABOUT = {"experiment": "mapping-9", "recipe": "fast", "seed": 0}


@pytest.fixture
def trainer():
    """Makes trainers, and closes their logs at the end."""
    with ExitStack() as stack:

        def make(folder, recipe=RECIPE, name="mapping-9"):
            folder.mkdir(exist_ok=True)
            task, model = find(name).build()
            if task.reads == "after":
                recipe = Recipe((replace(STAGE, lesson=Sequences()),))
            reporter = stack.enter_context(Reporter(folder, name, recipe.updates, quiet=True))
            return Trainer(model, task, recipe, folder, ABOUT, reporter=reporter)

        yield make


@pytest.mark.parametrize("name", ["recall-10", "sort-20", "recall-10-dnc", "mapping-15-lstm"])
def test_one_loop_trains_every_kind_of_task_and_model(trainer, tmp_path, name):
    run = trainer(tmp_path, name=name)
    before = {n: t.clone() for n, t in run.model.state_dict().items()}
    run.run(Limits(max_updates=3))
    assert run.spent().updates == 3
    assert any(not torch.equal(t, before[n]) for n, t in run.model.state_dict().items())


def test_the_best_weights_are_the_averaged_ones_and_load_into_a_fresh_model(trainer, tmp_path):
    run = trainer(tmp_path)
    progress = run.run(Limits(max_updates=3))
    assert [point["update"] for point in progress.curve] == [3]
    weights = load_weights(tmp_path / "best.safetensors")
    took = weights.about.pop("trained")
    assert (weights.about, took["updates"]) == (ABOUT, 3)
    for name, tensor in run.current.weights().items():
        assert torch.equal(weights.tensors[name], tensor)
    _, fresh = find("mapping-9").build(seed=9)
    fill(fresh, weights.tensors, "best")


def test_evaluation_leaves_training_as_it_was(trainer, tmp_path):
    each = replace(STAGE, validation=Validation(1, 4))
    often = trainer(tmp_path / "often", Recipe((each,)))
    often.run(Limits())
    never = trainer(tmp_path / "never", Recipe((replace(STAGE, validation=Validation(100, 4)),)))
    never.run(Limits())
    for name, tensor in often.model.state_dict().items():
        assert torch.equal(tensor, never.model.state_dict()[name])


def test_it_stops_once_the_validation_metric_is_good_enough(trainer, tmp_path):
    run = trainer(tmp_path)
    run.run(Limits(until=0.0))
    assert run.spent().updates == 3


def test_it_stops_when_the_minutes_are_over(trainer, tmp_path):
    run = trainer(tmp_path)
    run.run(Limits(max_minutes=1e-9))
    assert run.spent().updates == 1


def test_the_log_holds_every_evaluation(trainer, tmp_path):
    trainer(tmp_path).run(Limits())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [3, 6]
    assert {"loss", "rate", "stage", "f", "precision", "recall", "seconds", "steps"} <= set(
        lines[0]
    )


def test_a_loss_that_is_not_finite_stops_and_leaves_the_last_checkpoint_whole(trainer, tmp_path):
    run = trainer(tmp_path)
    run.run(Limits(max_updates=2))
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingFailed, match="update 2"):
        run.current.step()
    content, complaints = checkpoint.newest(tmp_path)
    assert content["stage"]["update"] == 2
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
    assert content["stage"]["update"] == 2


def test_weights_that_are_not_finite_are_never_saved(trainer, tmp_path):
    run = trainer(tmp_path)
    run.run(Limits(max_updates=2))
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("inf"))
    with pytest.raises(TrainingFailed, match="no longer finite"):
        run._save()
    content, _ = checkpoint.newest(tmp_path)
    assert all(torch.isfinite(t).all() for t in content["model"].values())


TWO = Recipe((replace(STAGE, hands_on="best"), replace(STAGE, name="two", updates=4)))


def test_a_stage_begins_with_the_weights_that_the_one_before_hands_on(trainer, tmp_path):
    run = trainer(tmp_path, TWO)
    run.run(Limits(max_updates=6))
    assert (run.progress.stage, run.current.update) == (1, 0)
    best = load_weights(tmp_path / "best.safetensors").tensors
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, best[name])
    other = trainer(tmp_path / "last", Recipe((STAGE, replace(STAGE, name="two"))))
    other.run(Limits(max_updates=5))
    other.current.step()
    averaged = {name: tensor.clone() for name, tensor in other.current.weights().items()}
    other._hand_on()
    for name, tensor in other.model.state_dict().items():
        assert torch.equal(tensor, averaged[name])


def test_a_stage_trains_only_what_it_is_to_learn_and_the_next_one_all_again(trainer, tmp_path):
    readers = replace(STAGE, name="read", learns=("readers.",), updates=3)
    run = trainer(tmp_path, Recipe((readers, replace(STAGE, name="all", updates=2))))
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.run(Limits(max_updates=3))
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, before[name]) is name.startswith("memory."), name
    trainer(tmp_path, run.recipe).run(Limits())
    after = load_weights(tmp_path / "best.safetensors").tensors
    assert not torch.equal(after["memory.layers.0.biases.0"], before["memory.layers.0.biases.0"])


def test_a_stage_that_is_to_learn_what_there_is_not_is_refused_at_once(trainer, tmp_path):
    with pytest.raises(UsageError, match=r"learns 'writer.'.*memory., readers."):
        trainer(tmp_path, Recipe((STAGE, replace(STAGE, name="two", learns=("writer.",)))))


def test_budget_and_curve_go_on_over_stages(trainer, tmp_path):
    run = trainer(tmp_path, TWO)
    progress = run.run(Limits())
    assert run.spent().updates == 10
    assert [point["update"] for point in progress.curve] == [3, 6, 9, 10]
    assert [point["stage"] for point in progress.curve] == [0, 0, 1, 1]
    steps = [point["steps"] for point in progress.curve]
    assert steps == sorted(steps)
    again = trainer(tmp_path, TWO)
    assert again.run(Limits()).curve == progress.curve


def test_a_stage_may_end_as_soon_as_episodes_are_whole(trainer, tmp_path):
    growing = replace(
        STAGE, updates=50, until_whole=True, lesson=Walks(49, growth=Growth(40, goal=0))
    )
    run = trainer(tmp_path, Recipe((growing, replace(STAGE, name="two", updates=1))))
    run.run(Limits())
    assert run.spent().updates < 10


def test_another_stage_s_episodes_are_fresh():
    task, _ = find("recall-10").build()
    first, second = (
        Sequences().feed(task, SeedStream(0, "train", stage), 4, Share()).next()
        for stage in range(2)
    )
    assert not torch.equal(first.inputs, second.inputs)


def test_a_run_at_its_end_goes_on_with_a_stage_added_as_if_it_had_always_been_there(
    trainer, tmp_path
):
    longer = Recipe((STAGE, replace(STAGE, name="two")))
    trainer(tmp_path / "grown").run(Limits())
    for folder in ("grown", "whole"):
        run = trainer(tmp_path / folder, longer)
        run.run(Limits())
        assert run.spent().updates == 12
    assert_identical(final(tmp_path / "grown"), final(tmp_path / "whole"))
