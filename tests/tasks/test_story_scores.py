"""Errors per question, per word and task, against a count by hand."""

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks.base import Batch
from mgmem.tasks.story_scores import NUMBERED, StoryScore


def batch(times, targets, weight, tasks):
    columns = len(tasks)
    return Batch(
        inputs=torch.zeros(1, columns, 9, 1),
        reset=None,
        times=torch.tensor(times),
        queries=(torch.zeros(len(times), columns, 0),),
        targets=(torch.tensor(targets),),
        weight=torch.tensor([weight], dtype=torch.float32),
        episode=NUMBERED * torch.tensor(tasks) + torch.arange(columns),
    )


def said(words, count=9):
    return (torch.nn.functional.one_hot(torch.tensor(words), count).float(),)


def test_a_question_is_right_only_if_all_its_words_are():
    # One story of task 8: a question with two words, one with one; one of task 1 with one question.
    given = batch(
        [[4, 6], [5, 6], [9, 6]], [[1, 2], [3, 0], [4, 0]], [[1, 1], [1, 0], [1, 0]], [8, 1]
    )
    score = StoryScore()
    score.add(said([[1, 2], [7, 5], [4, 5]]), given)
    result = score.result()
    assert result["error/8"].value == 0.5
    assert result["error/1"].value == 0
    assert result["error"].value == 0.25
    assert result["word_error"].value == pytest.approx(1 / 6)
    assert result["failed"].value == 1


def test_two_wrong_words_of_one_answer_are_one_wrong_question():
    given = batch([[4], [5], [9]], [[1], [3], [4]], [[1], [1], [1]], [19])
    score = StoryScore()
    score.add(said([[0], [0], [4]]), given)
    assert score.result()["error/19"].value == 0.5
    assert score.result()["word_error"].value == pytest.approx(2 / 3)


def test_tasks_count_evenly_however_many_stories_they_have():
    score = StoryScore()
    for _ in range(30):
        score.add(said([[1]]), batch([[3]], [[1]], [[1]], [4]))
    score.add(said([[1]]), batch([[3]], [[2]], [[1]], [3]))
    result = score.result()
    assert result["error"].value == 0.5
    assert result["error"].low < 0.5 < result["error"].high
    # Thirty right answers do not yet show an error below five percent.
    assert (result["failed"].low, result["failed"].value, result["failed"].high) == (1, 1, 2)


def test_the_interval_of_the_mean_narrows_with_stories():
    def width(stories):
        score = StoryScore()
        for number in range(stories):
            for task in (1, 2):
                score.add(said([[number % 2]]), batch([[3]], [[1]], [[1]], [task]))
        error = score.result()["error"]
        assert error.low < error.value == 0.5 < error.high
        return error.high - error.low

    assert 1.7 < width(40) / width(160) < 2.3


def test_nothing_scored_is_an_error():
    with pytest.raises(UsageError, match="nothing has been scored"):
        StoryScore().result()
