"""The recipes that the experiments start from: the paper's, and ours."""

from __future__ import annotations

from dataclasses import replace

from mgmem.tasks.motion import MotionName
from mgmem.training.feed import Growth
from mgmem.training.optim import Muon, RMSprop
from mgmem.training.rate import Rate
from mgmem.training.recipe import Fresh, Grown, Recipe, Shipped, Stage, Validation
from mgmem.training.sequences import Sequences
from mgmem.training.walks import Queries, Walks


def paper_mapping(updates: int = 400_000, rate: float = 1e-3) -> Recipe:
    """The reference's settings, as published.

    RMSProp, a rate falling linearly to a tenth over the first million time steps (50,000 updates)
    of 8 million, a query at every step, truncation after 20, all sequences in lockstep.
    """
    stage = Stage(
        "train",
        Walks(chunk=20, queries=Queries(share=1.0)),
        RMSprop(),
        updates=updates,
        batch=32,
        rate=Rate(rate, warmup=0, fall=50_000, final=0.1, shape="linear"),
        clip=0.0,
        validation=Validation(2_000, 128),
    )
    return Recipe((stage,), Fresh("reference"))


def paper_sequence(length: int, rate: float = 1e-3) -> Recipe:
    """The paper's 2 million time steps, in whole sequences."""
    (stage,) = paper_mapping(2_000_000 // length).stages
    falling = Rate(rate, warmup=0, fall=1_000_000 // length, final=0.1, shape="linear")
    return Recipe((replace(stage, lesson=Sequences(), rate=falling),), Fresh("reference"))


# Ours. Stretches of 13 steps from anywhere teach where to write; once half is found they lengthen
# to whole episodes within some hundred updates, and what to write is learned there: late queries,
# held against all that was seen, half of them for rare patches. Some are early, for with late ones
# alone what was not yet seen is marked. Kernels between ReLUs decay, or the steps of one size that
# Muon takes make them grow until whole layers are closed.
_LATE = Queries(share=0.45, limit=40, since=0.5, early=0.2, rare=0.5)
_REACH = Stage(
    "reach",
    Walks(chunk=169, anywhere=True, growth=Growth(13, factor=1.5, goal=0.5), queries=_LATE),
    Muon(weight_decay=1.0),
    updates=5_000,
    until_whole=True,
    batch=8,
    rate=Rate(5e-3, shape="constant"),
    average=0.995,
    validation=Validation(250, 100),
)


def walks(
    learn: int,
    finish: int,
    chunk: int = 169,
    groups: int = 1,
    motions: tuple[MotionName, ...] = (),
) -> tuple[Stage, Stage]:
    """Whole episodes: ``learn`` updates at a held rate, then ``finish`` at a falling one.

    Episodes of several chunks go in as many groups, so that every update has all parts of one.
    """
    lesson = Walks(chunk=chunk, groups=groups, motions=motions, queries=_LATE)
    held = replace(
        _REACH,
        name="learn",
        lesson=lesson,
        updates=learn,
        until_whole=False,
        rate=Rate(5e-3, warmup=10, shape="constant"),
    )
    every = replace(lesson, queries=replace(_LATE, since=0.0, early=0.0))
    falling = Rate(5e-3, warmup=10, final=0.02, shape="linear")
    return held, replace(held, name="finish", lesson=every, updates=finish, rate=falling)


FAST_MAPPING = Recipe((_REACH, *walks(1_800, 1_200)))
_SPIRAL = "ef07c375b457e6873f3978a709e51bdcc689648753363a98fdf34076081bb6fe"
# The large network has a level and two layers more between the agent's place and the finest grid.
# On stretches of a walk it learns where it is first; what is asked for is but noise then, and ReLUs
# close on it for good. So it first learns to compare, at one place, with patches that were not seen
# asked for as often; then where it is, at one place anywhere, at two, and at more.
_FOREIGN = Queries(share=1.0, rare=0.5, foreign=0.5)
_COMPARE = replace(
    _REACH,
    name="compare",
    lesson=Walks(chunk=133, growth=Growth(1, factor=2.0, goal=0.9, end=2), queries=_FOREIGN),
    updates=2_000,
    batch=16,
    validation=Validation(2_000, 8),
)
_LOCATE = replace(
    _COMPARE,
    name="locate",
    lesson=Walks(
        chunk=133,
        anywhere=True,
        motions=("scattered",),
        growth=Growth(1, factor=1.5, goal=0.7, end=12),
        queries=_FOREIGN,
    ),
    updates=8_000,
)
_STRETCHES = replace(
    _REACH,
    lesson=Walks(
        chunk=133, anywhere=True, growth=Growth(13, factor=1.5, goal=0.5, end=133), queries=_LATE
    ),
    validation=Validation(250, 8),
)
_LARGE_WALKS = [
    replace(stage, batch=4, validation=Validation(100, 20))
    for stage in walks(900, 700, chunk=133, groups=4)
]
# Once more from a lower rate: the score still rose as it fell.
_POLISH = replace(
    _LARGE_WALKS[-1],
    name="polish",
    updates=600,
    rate=Rate(3e-3, warmup=10, final=0.02, shape="linear"),
)
LARGE_MAPPING = Recipe(
    (_COMPARE, _LOCATE, _STRETCHES, *_LARGE_WALKS, _POLISH),
    # The same place in the world is half as far from the middle of a grid twice as wide.
    Grown("mapping-15-small", _SPIRAL, (1.0, 1.0, 0.5, 0.5)),
)
FAST_SMALL_WORLD = Recipe((_REACH, *walks(1_800, 1_200, chunk=49)))
# Where to write and how to read are known already from the smaller world, or from the spiral.
# The tail of the larger world's reader has two layers more: those from there on start afresh.
FROM_SMALLER_WORLD = Recipe(
    walks(1_200, 1_000, chunk=133, groups=4),
    Shipped(
        "mapping-15-small",
        _SPIRAL,
        ("memory.", *(f"readers.0.layers.{index}." for index in range(6))),
    ),
)
FROM_SPIRAL = Recipe(walks(600, 900, chunk=125, groups=4), Shipped("mapping-15-small", _SPIRAL))
_SPIRAL_25 = "ca699889da86a057c0b40d359c68508a179af266f6039243510c600309553012"
# A random walk seldom leaves the middle of a large world; every other one is curious instead.
FROM_SPIRAL_25 = Recipe(
    walks(900, 900, chunk=125, groups=4, motions=("random", "curious")),
    Shipped("mapping-25-small", _SPIRAL_25),
)


def mapping_dnc() -> Recipe:
    """Ours for the DNC: a lower rate and no decay suit its matrix products."""
    return Recipe(
        tuple(
            replace(stage, optimizer=Muon(), rate=replace(stage.rate, peak=3e-3), clip=10.0)
            for stage in FAST_MAPPING.stages
        )
    )


def mapping_one_scale() -> Recipe:
    """Ours for networks of one scale, in fewer updates: theirs cost two to six times as much."""
    few = {"reach": 3_000, "learn": 400, "finish": 400}
    return Recipe(tuple(replace(s, updates=few[s.name]) for s in FAST_MAPPING.stages))


def mapping_whole() -> Recipe:
    """Ours for LSTM and transformer: whole episodes from the start, at twice our rate.

    Their steps cost so little that there can be many.
    """
    return Recipe(
        tuple(
            replace(
                stage,
                optimizer=Muon(),
                rate=replace(stage.rate, peak=1e-2),
                clip=10.0,
                validation=Validation(1_000, 100),
            )
            for stage in walks(14_000, 8_000)
        )
    )


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
# The large network begins with the small one in it, and so with ten items.
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
# Digits for them: our rate. They learn to see more slowly, so sequences grow sooner, and there are
# more updates.
FAST_DIGITS_FLAT = Recipe(
    (
        replace(
            FAST_SEQUENCE_FLAT.stages[0],
            lesson=Sequences(9, Growth(2, goal=0.7)),
            updates=4_000,
            rate=Rate(5e-3, final=0.02),
        ),
    )
)
