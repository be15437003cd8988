"""Recipes: small types that hold what they use and refuse what can not be."""

import json
import math

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS
from mgmem.training.average import WeightAverage
from mgmem.training.feed import Growth
from mgmem.training.optim import AdamW, Muon, ReferenceRMSprop
from mgmem.training.rate import Rate
from mgmem.training.recipe import Recipe, Stage, Validation, flattened
from mgmem.training.sequences import Sequences
from mgmem.training.walks import Queries, Walks

NAN, INF = math.nan, math.inf


def test_warm_up_rises_linearly_to_the_peak():
    rate = Rate(1.0, warmup=4)
    assert [rate.at(u, 100) for u in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_rates_fall_from_the_peak_to_the_final_share(shape):
    rate = Rate(2.0, final=0.1, warmup=10, shape=shape)
    assert rate.at(10, 110) == pytest.approx(2.0)
    assert rate.at(60, 110) == pytest.approx(1.1)
    assert rate.at(110, 110) == rate.at(10_000, 110) == pytest.approx(0.2)
    rates = [rate.at(u, 110) for u in range(10, 111)]
    assert rates == sorted(rates, reverse=True)


def test_the_papers_rate_falls_linearly_from_1e3_to_1e4_over_a_million_steps():
    (stage,) = EXPERIMENTS["mapping-25"].recipe("paper").stages
    assert stage.rate.at(0, stage.updates) == pytest.approx(1e-3)
    assert stage.rate.at(25_000, stage.updates) == pytest.approx(5.5e-4)
    assert stage.rate.at(50_000, stage.updates) == pytest.approx(1e-4)
    assert stage.rate.at(399_999, stage.updates) == pytest.approx(1e-4)


def test_the_rate_can_stay_at_its_peak_before_it_falls():
    rate = Rate(1.0, final=0.0, shape="linear", warmup=10, hold=60)
    assert rate.at(4, 100) == pytest.approx(0.5)
    assert rate.at(10, 100) == rate.at(60, 100) == 1.0
    assert rate.at(80, 100) == pytest.approx(0.5)


def stage(**changes):
    return Stage(**{"name": "one", "lesson": Sequences(), "optimizer": AdamW(), **changes})


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: stage(updates=0), "0 updates"),
        (lambda: stage(batch=0), "batch of 0"),
        (lambda: stage(average=1.0), "average"),
        (lambda: stage(clip=NAN), "clip"),
        (lambda: Queries(share=0.0), "0.0 of the steps"),
        (lambda: Queries(since=1.0), "since 1.0"),
        (lambda: Queries(limit=-1), "at most -1"),
        (lambda: Queries(rare=1.1), "rare 1.1"),
        (lambda: Queries(early=-0.1), "early -0.1"),
        (lambda: Rate(-1.0), "peak -1.0"),
        (lambda: Rate(NAN), "peak nan"),
        (lambda: Rate(INF), "peak inf"),
        (lambda: Rate(final=2.0), "final 2.0"),
        (lambda: Rate(warmup=-1), "warmup"),
        (lambda: Growth(5, factor=1.0), "by 1.0"),
        (lambda: Growth(0), "from 0"),
        (lambda: Growth(5, end=4), "from 5 to 4"),
        (lambda: Walks(chunk=0), "chunk 0"),
        (lambda: Sequences(questions=0), "0 questions"),
        (lambda: Muon(gate_rate=0.0), "gate_rate"),
        (lambda: Muon(weight_decay=NAN), "weight_decay nan"),
        (lambda: AdamW(beta2=2.0), "beta2 2.0"),
        (lambda: Validation(0), "every 0"),
        (lambda: Recipe(()), "at least one"),
        (lambda: Recipe((stage(), stage())), "name of its own"),
    ],
)
def test_impossible_settings_are_named(make, word):
    with pytest.raises(UsageError, match=word):
        make()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_recipe_is_told_in_plain_json_that_names_every_setting_once(name):
    recipe = EXPERIMENTS[name].fast
    plain = recipe.plain()
    assert json.loads(json.dumps(plain)) == plain
    settings = dict(flattened(plain))
    assert settings["stages.0.rate.peak"] == recipe.stages[0].rate.peak
    assert settings["stages.0.optimizer.kind"] == type(recipe.stages[0].optimizer).__name__


def test_the_reference_rmsprop_has_epsilon_inside_the_root_and_starts_at_one():
    p = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = ReferenceRMSprop([p], lr=0.5)
    expected, square = p.detach().clone(), torch.ones(2)
    for _ in range(3):
        p.grad = torch.tensor([0.3, -4.0])
        optimizer.step()
        square = 0.99 * square + 0.01 * p.grad**2
        expected = expected - 0.5 * p.grad / (square + 0.1).sqrt()
    torch.testing.assert_close(p.detach(), expected)


def test_the_weight_average_forgets_the_start_and_then_follows_its_decay():
    model = torch.nn.Linear(1, 1)
    average = WeightAverage(model, 0.9)
    with torch.no_grad():
        model.weight.fill_(5.0)
    for update in range(1, 200):
        average.update(model, update)
    torch.testing.assert_close(average.weights["weight"], model.weight.detach())
