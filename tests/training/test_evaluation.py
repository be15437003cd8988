"""Evaluation walks fresh episodes from start to end, however it cuts them."""

import pytest
import torch

from mgmem.experiments import find
from mgmem.tasks import SeedStream
from mgmem.training.evaluation import TEST_SEED, evaluate, query_steps

STREAM = SeedStream(TEST_SEED, "test")


@pytest.mark.parametrize(("length", "queries"), [(169, 13), (49, 13), (5, 13), (500, 1)])
def test_queries_are_evenly_spread_and_end_with_the_last_step(length, queries):
    steps = query_steps(length, queries)
    assert len(steps) == min(length, queries)
    assert steps[-1] == length - 1
    assert len(set(steps.diff().tolist())) <= 2
    assert steps[0] >= 0


@pytest.mark.parametrize("name", ["mapping-9", "recall-10", "sort-20"])
def test_the_figures_do_not_depend_on_batch_or_chunk(name):
    task, model = find(name).build()
    one = evaluate(model, task, STREAM, 6, batch=6, chunk=49).result()
    other = evaluate(model, task, STREAM, 6, batch=2, chunk=10).result()
    for metric, estimate in one.items():
        assert other[metric].value == pytest.approx(estimate.value, abs=1e-6)


def test_the_model_is_left_in_the_mode_it_was_in():
    task, model = find("recall-10").build()
    for training in (True, False):
        model.train(training)
        evaluate(model, task, STREAM, 2)
        assert model.training is training


def test_the_memory_is_carried_over_chunks():
    task, model = find("mapping-9").build()

    class Spy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.states = model, []

        def forward(self, inputs, state=None, **asked):
            self.states.append(state)
            return self.inner(inputs, state, **asked)

    spy = Spy()
    evaluate(spy, task, STREAM, 2, batch=2, chunk=20)
    assert [state is None for state in spy.states] == [True, False, False]
