"""The learning rate is a pure function of the update; bad settings are refused."""

import math

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.training.optim import ReferenceRMSprop, WeightAverage
from mgmem.training.recipe import Recipe


def test_warm_up_rises_linearly_to_the_peak():
    recipe = Recipe(lr=1.0, warmup=4, updates=100)
    assert [recipe.rate(u) for u in range(4)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_fall_from_the_peak_to_the_final_share(schedule):
    recipe = Recipe(lr=2.0, final_lr=0.1, warmup=10, updates=110, schedule=schedule)
    assert recipe.rate(10) == pytest.approx(2.0)
    assert recipe.rate(60) == pytest.approx(1.1)
    assert recipe.rate(110) == recipe.rate(10_000) == pytest.approx(0.2)
    rates = [recipe.rate(u) for u in range(10, 111)]
    assert rates == sorted(rates, reverse=True)


def test_the_papers_rate_falls_linearly_from_1e3_to_1e4():
    recipe = Recipe(lr=1e-3, final_lr=0.1, schedule="linear", warmup=0, updates=1000)
    assert recipe.rate(0) == pytest.approx(1e-3)
    assert recipe.rate(500) == pytest.approx(5.5e-4)
    assert recipe.rate(1000) == pytest.approx(1e-4)


def test_a_rate_may_fall_early_and_then_stay():
    recipe = Recipe(lr=1.0, final_lr=0.1, schedule="linear", warmup=0, updates=1000, fall=100)
    assert recipe.rate(50) == pytest.approx(0.55)
    assert recipe.rate(100) == recipe.rate(900) == pytest.approx(0.1)


def test_the_rate_can_stay_at_its_peak_before_it_falls():
    recipe = Recipe(lr=1.0, final_lr=0.0, schedule="linear", warmup=10, updates=100, hold=60)
    assert recipe.rate(4) == pytest.approx(0.5)
    assert recipe.rate(10) == recipe.rate(60) == 1.0
    assert recipe.rate(80) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"updates": 0}, "updates"),
        ({"batch": 10, "groups": 4}, "groups"),
        ({"query_share": 0.0}, "query_share"),
        ({"query_from": 1.0}, "query_from"),
        ({"query_limit": -1}, "query_limit"),
        ({"rare_queries": 1.1}, "rare_queries"),
        ({"lr": -1.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"average": 1.0}, "average"),
        ({"horizon_growth": 1.0}, "horizon_growth"),
    ],
)
def test_impossible_settings_are_named(change, word):
    with pytest.raises(UsageError, match=word):
        Recipe(**change)


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
