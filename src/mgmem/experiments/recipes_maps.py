"""Recipes for maps: the paper's, and ours for small networks and baselines."""

from __future__ import annotations

from dataclasses import replace

from mgmem.tasks.motion import MotionName
from mgmem.training.feed import Growth
from mgmem.training.optim import Muon, RMSprop
from mgmem.training.rate import Rate
from mgmem.training.recipe import Fresh, Recipe, Shipped, Stage, Validation
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


# Ours. Stretches of 13 steps from anywhere teach where to write; once half is found they lengthen
# to whole episodes within some hundred updates, and what to write is learned there: late queries,
# held against all that was seen, half of them for rare patches. Some are early, for with late ones
# alone what was not yet seen is marked. Kernels between ReLUs decay, or the steps of one size that
# Muon takes make them grow until whole layers are closed.
LATE = Queries(share=0.45, limit=40, since=0.5, early=0.2, rare=0.5)
REACH = Stage(
    "reach",
    Walks(chunk=169, anywhere=True, growth=Growth(13, factor=1.5, goal=0.5), queries=LATE),
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
    lesson = Walks(chunk=chunk, groups=groups, motions=motions, queries=LATE)
    held = replace(
        REACH,
        name="learn",
        lesson=lesson,
        updates=learn,
        until_whole=False,
        rate=Rate(5e-3, warmup=10, shape="constant"),
    )
    every = replace(lesson, queries=replace(LATE, since=0.0, early=0.0))
    falling = Rate(5e-3, warmup=10, final=0.02, shape="linear")
    return held, replace(held, name="finish", lesson=every, updates=finish, rate=falling)


FAST_MAPPING = Recipe((REACH, *walks(1_800, 1_200)))
SPIRAL = "ef07c375b457e6873f3978a709e51bdcc689648753363a98fdf34076081bb6fe"
FAST_SMALL_WORLD = Recipe((REACH, *walks(1_800, 1_200, chunk=49)))
# Where to write and how to read are known already from the smaller world, or from the spiral.
# The tail of the larger world's reader has two layers more: those from there on start afresh.
FROM_SMALLER_WORLD = Recipe(
    walks(1_200, 1_000, chunk=133, groups=4),
    Shipped(
        "mapping-15-small",
        SPIRAL,
        ("memory.", *(f"readers.0.layers.{index}." for index in range(6))),
    ),
)
FROM_SPIRAL = Recipe(walks(600, 900, chunk=125, groups=4), Shipped("mapping-15-small", SPIRAL))
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
