"""What training starts with: a smaller network's shipped weights inside a larger one."""

from dataclasses import replace

import pytest
import torch

import mgmem
from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS
from mgmem.experiments.multigrid import reader_writer
from mgmem.experiments.records import shipped_checksum
from mgmem.experiments.start import begin
from mgmem.tasks.seeds import SeedStream
from mgmem.training.recipe import Grown, Shipped
from mgmem.training.weights import load_weights

SMALL = "mapping-9"
WALKS = SeedStream(0, "valid")
LARGE = replace(
    EXPERIMENTS["mapping-15-small"],
    model=reader_writer("0-1:4 0-1:4 0-2:8 0-2:8 0-3:16", "0-3:16 1-3:16 1-3:16 3:1", input=4),
)


@pytest.fixture(scope="module")
def start():
    trained = mgmem.load(SMALL)
    return Grown(SMALL, trained.sha256, (1.0, 1.0, 0.5, 0.5))


def test_a_large_network_begins_with_a_small_one_s_memory_and_counts_what_it_took(start):
    task, model, progress, after = vars(begin(LARGE, 0, start)).values()
    small = mgmem.load(SMALL)
    told = task.episodes(WALKS, 0, 2).batch(0, 9, torch.tensor([8])).inputs
    halved = told * torch.tensor([1.0, 1.0, 0.5, 0.5]).view(4, 1, 1)
    with torch.no_grad():
        grown, _ = model.memory(told)
        known, _ = small.model.memory(halved)
    for index in range(4):
        for grid, same in zip(grown[index], known[index], strict=True):
            torch.testing.assert_close(grid[:, :, : same.shape[2]], same)
    assert grown[4].finest.std(1).mean() > 0.01, "new layers vary with what is seen"
    assert progress.before == load_weights(small.path).about["trained"]
    assert not after


def test_the_same_seed_gives_the_same_weights_and_another_others(start):
    one, again, other = (begin(LARGE, seed, start).model.state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    name = "memory.layers.4.input_weights.0"
    assert not torch.equal(one[name], other[name])


def test_answers_start_as_seldom_as_one_place_in_all(start):
    task, model, *_ = vars(begin(LARGE, 0, start)).values()
    batch = task.episodes(WALKS, 0, 4).batch(0, 9, torch.tensor([8]))
    with torch.no_grad():
        (answers,), _ = model(batch.inputs, queries=batch.queries, times=batch.times)
    assert 0.1 < answers.sigmoid().sum((-1, -2)).mean() < 10


def test_only_readers_and_writers_grow_and_only_from_the_weights_that_are_named(start):
    with pytest.raises(UsageError, match="sort does not start from a smaller network"):
        begin(EXPERIMENTS["sort-20"], 0, start)
    with pytest.raises(UsageError, match="on input 0:1 has no room for one on 0:4"):
        begin(EXPERIMENTS["recall-20"], 0, start)
    with pytest.raises(UsageError, match="2 factors for an input of 4 channels"):
        begin(LARGE, 0, replace(start, inputs=(1.0, 0.5)))
    with pytest.raises(UsageError, match="has no room for"):
        begin(EXPERIMENTS[SMALL], 0, Grown(LARGE.name, mgmem.load(LARGE.name).sha256))
    with pytest.raises(UsageError, match="another start gives another result"):
        begin(LARGE, 0, replace(start, sha256="0" * 64))


STARTS = {
    name: experiment.fast.start
    for name, experiment in EXPERIMENTS.items()
    if isinstance(experiment.fast.start, Shipped | Grown)
}


@pytest.mark.parametrize("name", STARTS)
def test_a_recipe_that_starts_from_other_weights_starts_from_those_that_are_shipped(name):
    assert STARTS[name].sha256 == shipped_checksum(STARTS[name].experiment)
