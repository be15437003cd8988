"""Recipes for sequences, asked about after their last item: the paper's, and ours."""

from __future__ import annotations

from dataclasses import replace

from mgmem.experiments.recipes_maps import paper_mapping
from mgmem.training.feed import Growth
from mgmem.training.optim import Muon
from mgmem.training.rate import Rate
from mgmem.training.recipe import Fresh, Grown, Recipe, Stage, Validation
from mgmem.training.sequences import Sequences


def paper_sequence(length: int, rate: float = 1e-3) -> Recipe:
    """The paper's 2 million time steps, in whole sequences."""
    (stage,) = paper_mapping(2_000_000 // length).stages
    falling = Rate(rate, warmup=0, fall=1_000_000 // length, final=0.1, shape="linear")
    return Recipe((replace(stage, lesson=Sequences(), rate=falling),), Fresh("reference"))


# Whole sequences start at two items and grow as soon as nineteen bits in twenty are right; every
# question about a sequence is asked of one writing.
_SEQUENCE = Stage(
    "learn",
    Sequences(questions=9, growth=Growth(2, goal=0.95)),
    Muon(),
    updates=8_000,
    batch=32,
    rate=Rate(5e-3, final=0.02),
    average=0.999,
    validation=Validation(250, 500),
)
# Recall: all but the oldest three of ten items are soon right; those take many small updates, and
# kernels that decay.
_MANY = replace(
    _SEQUENCE,
    optimizer=Muon(weight_decay=1.0),
    updates=16_000,
    batch=16,
    validation=Validation(500, 500),
)
FAST_SEQUENCE = Recipe((_MANY,))
# The large network begins with the small one in it, and so with five items.
_RECALL_10 = "3e2c58a7a53167b5913e1ba15a694ce9ee8262411deba0cd2adb5bd67eecf0e1"
LARGE_RECALL = Recipe(
    (
        replace(
            _MANY,
            lesson=Sequences(questions=9, growth=Growth(5, goal=0.95)),
            updates=5_000,
            validation=Validation(250, 250),
        ),
    ),
    Grown("recall-10", _RECALL_10),
)
# Sorting is learned from coarse to fine on whole sequences: two items say little about twenty.
# Small batches get further in the same time.
FAST_SORT = Recipe(
    (
        replace(
            _SEQUENCE,
            lesson=Sequences(),
            optimizer=Muon(weight_decay=1.0),
            updates=14_000,
            batch=8,
            rate=Rate(5e-3, hold=10_500, final=0.02, shape="linear"),
            average=0.995,
            validation=Validation(500, 200),
        ),
    )
)
# Evenly spaced priorities need no fine comparisons: with faster gates and no large step they are
# sorted in minutes.
EVEN_SORT = Recipe(
    (
        replace(
            FAST_SORT.stages[0],
            optimizer=Muon(gate_rate=4.0, weight_decay=1.0),
            updates=5_000,
            rate=Rate(3e-3, hold=3_000, final=0.02, shape="linear"),
            clip=0.1,
        ),
    )
)
# A digit is not always recognised, however well it is remembered.
FAST_DIGITS = Recipe((replace(_MANY, lesson=Sequences(9, Growth(2, goal=0.8)), updates=10_000),))
# The flat baselines do one matrix product a step where a mesh does a convolution: they like a
# smaller learning rate (the paper's search found 1e-4 for the DNC).
FAST_SEQUENCE_FLAT = Recipe(
    (replace(_SEQUENCE, updates=2_500, batch=16, rate=Rate(3e-3, final=0.02), clip=10.0),)
)
# Whole lists for them too, and small batches: grown from two items, their error on twenty was no
# better than chance's after 200 updates; on whole lists it is 0.42 after 105.
FAST_SORT_FLAT = Recipe(
    (
        replace(
            FAST_SEQUENCE_FLAT.stages[0],
            lesson=Sequences(),
            updates=6_000,
            batch=8,
            rate=Rate(5e-3, final=0.02),
            validation=Validation(250, 200),
        ),
    )
)
# Digits for them: our rate. They learn to see more slowly, so sequences grow sooner, and there are
# more updates.
FAST_DIGITS_FLAT = Recipe(
    (
        replace(
            FAST_SEQUENCE_FLAT.stages[0],
            lesson=Sequences(9, Growth(2, goal=0.5)),
            updates=4_000,
            rate=Rate(5e-3, final=0.02),
        ),
    )
)
