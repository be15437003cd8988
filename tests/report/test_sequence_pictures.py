"""Pictures of recall and sort show the items, the question, and what was answered."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from making import read_image

from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.report import style
from mgmem.report.sequences import answer_sequence, draw_sequence
from mgmem.tasks.mnist import MnistRecall
from mgmem.tasks.sequence import SequenceEpisodes


def shown(figure, row):
    return [np.asarray(image.get_array()) for image in figure.axes[row].images]


def outlines(figure, row, color):
    from matplotlib.colors import to_rgba

    return sum(patch.get_edgecolor() == to_rgba(color) for patch in figure.axes[row].patches)


def test_recall_places_the_question_below_the_item_it_names(tmp_path):
    task, model = find("recall-10").build()
    answered = answer_sequence(model, task, 2, name="recall-10")
    (asked,), (wanted,) = answered.places
    assert wanted == asked + 1
    assert torch.equal(answered.inputs[wanted, 0], answered.targets[0])
    figure = draw_sequence(answered)
    np.testing.assert_array_equal(shown(figure, 0), answered.inputs[:, 0])
    np.testing.assert_array_equal(shown(figure, 1)[0], answered.inputs[asked, 0])
    np.testing.assert_array_equal(shown(figure, 3)[0], answered.answers[0])
    wrong = int(((answered.answers >= 0.5) != (answered.targets >= 0.5)).sum())
    assert outlines(figure, 3, style.VERMILLION) == wrong
    assert f"{wrong} of 9 bits wrong" in figure.axes[3].get_xlabel()
    assert read_image(style.save_figure(figure, tmp_path / "recall.png")).std() > 20


def test_sort_shows_priorities_and_all_answers(tmp_path):
    task, model = find("sort-20").build()
    answered = answer_sequence(model, task, name="sort-20")
    figure = draw_sequence(answered)
    assert len(figure.axes) == 3
    assert len(shown(figure, 1)) == len(shown(figure, 2)) == 20
    labels = [float(label.get_text()) for label in figure.axes[0].get_xticklabels()]
    np.testing.assert_allclose(labels, answered.inputs[:, 1, 0, 0], atol=0.006)
    read_image(style.save_figure(figure, tmp_path / "sort.png"))


class FakeDigits(MnistRecall):
    """The digits' task on noise, so that no data is needed."""

    def episodes(self, stream, first, count):
        inputs = torch.rand(self.length, count, 1, 28, 28)
        targets = torch.full((1, count), 7)
        return SequenceEpisodes(inputs, inputs[2:3], targets, first)


def test_classes_are_written_as_numbers_with_their_probability():
    task = FakeDigits(5)
    _, model = find("mnist-recall").build()
    answered = answer_sequence(model, task, name="digits")
    assert answered.classes
    assert float(answered.answers.sum()) == pytest.approx(1, abs=1e-5)
    figure = draw_sequence(answered)
    assert [text.get_text() for text in figure.axes[2].texts] == ["7"]
    said, probability = (text.get_text() for text in figure.axes[3].texts)
    best = int(answered.answers[0].argmax())
    assert said == str(best)
    assert probability == f"{float(answered.answers[0, best]):.0%}"


def test_mapping_and_negative_episodes_are_refused(mapping9):
    with pytest.raises(UsageError, match="during"):
        answer_sequence(mapping9[1], mapping9[0])
    task, model = find("recall-10").build()
    with pytest.raises(UsageError, match="numbered from 0"):
        answer_sequence(model, task, -1)
