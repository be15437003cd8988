"""Stories told with other names: as likely as they were, and as right."""

import numpy as np
import pytest

from mgmem.tasks.babi_names import EXCHANGED, renaming
from mgmem.tasks.babi_text import NUMBERS, VOCABULARY


def said(task, seed=0):
    """What each word becomes, by name."""
    numbers = renaming(task, np.random.default_rng(seed))
    return {word: VOCABULARY[number] for word, number in zip(VOCABULARY, numbers, strict=True)}


@pytest.mark.parametrize("task", EXCHANGED)
def test_no_two_words_become_one_and_only_names_of_the_task_change(task):
    names = {word for alike in EXCHANGED[task] for name in alike for word in name}
    for seed in range(5):
        words = said(task, seed)
        assert sorted(words.values()) == sorted(VOCABULARY)
        assert {word for word, other in words.items() if word != other} <= names


def test_every_name_of_a_kind_stands_for_every_other_about_as_often():
    seen = [said(1, seed)["mary"] for seed in range(400)]
    counts = [seen.count(name) for name in ("daniel", "john", "mary", "sandra")]
    assert sum(counts) == 400
    assert min(counts) > 70


def test_forms_of_a_name_change_together():
    for seed in range(10):
        words = said(15, seed)
        assert (words["mouse"], words["mice"]) in {
            ("mouse", "mice"),
            ("cat", "cats"),
            ("wolf", "wolves"),
        }
        assert words["sheep"] == "sheep"
        assert words["she"] == "she"
        directions = said(19, seed)
        assert directions["north"][0] == directions["n"]
        assert {directions["north"], directions["south"]} == {"north", "south"}


def test_what_is_not_exchangeable_stays_as_it_is():
    for seed in range(5):
        assert said(18, seed) == {word: word for word in NUMBERS}, "things have their sizes"
        assert said(20, seed)["kitchen"] == "kitchen", "who is thirsty goes to the kitchen"
        assert {said(11, seed)["mary"], said(11, seed)["sandra"]} == {"mary", "sandra"}, "she"
