"""The picture of a DNC's memory shows its matrix and its writes in the same episodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from making import read_image

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel, flat_input_size
from mgmem.errors import UsageError
from mgmem.report.dnc_figure import draw_dnc_memory
from mgmem.report.dnc_memory import is_dnc, trace_dnc
from mgmem.report.memory import remember
from mgmem.report.style import save_figure
from mgmem.tasks import AssociativeRecall
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED


def flat_dnc(task):
    shapes = task.shapes
    core = DNC(flat_input_size(shapes.input, shapes.queries), 12, slots=20, width=6)
    return FlatModel(
        core,
        input_shape=shapes.input,
        query_shapes=shapes.queries,
        answer_shapes=shapes.answers,
        reads=task.reads,
    )


@pytest.fixture
def task():
    return Mapping(world=9, grid=12)


def test_the_trace_ends_in_the_state_that_the_model_hands_back(task):
    model = flat_dnc(task)
    trace = trace_dnc(model, task, 4, [3, 20, 48])
    batch = task.episodes(SeedStream(TEST_SEED, "test"), 4, 1)
    batch = batch.batch(0, 49, torch.tensor([3, 20, 48]))
    with torch.no_grad():
        _, state = model(batch.inputs, queries=batch.queries, times=batch.times)
    assert trace.matrix.shape == (49, 20, 6)
    np.testing.assert_allclose(trace.matrix[-1], state.memory.memory[0], atol=1e-6)
    np.testing.assert_allclose(trace.usage[-1], state.memory.usage[0], atol=1e-6)
    np.testing.assert_allclose(trace.write_weights[-1], state.memory.write_weights[0], atol=1e-6)
    assert trace.asked == (3, 20, 48)


def test_the_figure_shows_matrix_and_writes(task, tmp_path):
    model = flat_dnc(task)
    history = remember(model, task, 0, [10, 48])
    trace = trace_dnc(model, task, 0, [10, 48], name="a-dnc")
    figure = draw_dnc_memory(trace, history)
    panels = [axes for part in (figure, *figure.subfigs) for axes in part.axes]
    shown = [np.asarray(image.get_array()) for axes in panels for image in axes.images]
    for values in (
        history.moments[0].explored,
        np.abs(trace.matrix[10]),
        np.abs(trace.matrix[48]),
        trace.write_weights.T,
    ):
        assert any(array.shape == values.shape and (array == values).all() for array in shown)
    assert read_image(save_figure(figure, tmp_path / "dnc.png")).std() > 20


def test_tasks_asked_at_the_end_are_traced_to_their_last_query():
    task = AssociativeRecall(6)
    trace = trace_dnc(flat_dnc(task), task)
    assert len(trace.matrix) == 7
    assert trace.asked == ()


def test_other_models_have_no_such_memory(mapping9, task):
    assert is_dnc(flat_dnc(task))
    assert not is_dnc(mapping9[1])
    with pytest.raises(UsageError, match="no DNC"):
        trace_dnc(mapping9[1], mapping9[0])
    with pytest.raises(UsageError, match="numbered from 0"):
        trace_dnc(flat_dnc(task), task, -1)
