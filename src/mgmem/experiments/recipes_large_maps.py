"""Ours for the large mapping network: what it takes more than the small one."""

from __future__ import annotations

from dataclasses import replace

from mgmem.experiments.recipes_maps import LATE, REACH, SPIRAL, walks
from mgmem.tasks.motion import MotionName
from mgmem.training.feed import Growth
from mgmem.training.rate import Rate
from mgmem.training.recipe import Grown, Recipe, Shipped, Stage, Validation
from mgmem.training.walks import Queries, Walks

# The large network has a level and two layers more between the agent's place and the finest grid.
# On stretches of a walk it learns where it is first; what is asked for is but noise then, and ReLUs
# close on it for good. So it first learns to compare, at one place, with patches that were not seen
# asked for as often; then where it is, at one place anywhere, at two, and at more.
_FOREIGN = Queries(share=1.0, rare=0.5, foreign=0.5)
_COMPARE = replace(
    REACH,
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
    REACH,
    lesson=Walks(
        chunk=133, anywhere=True, growth=Growth(13, factor=1.5, goal=0.5, end=133), queries=LATE
    ),
    validation=Validation(250, 8),
)


def _walks(
    learn: int, finish: int, chunk: int = 133, motions: tuple[MotionName, ...] = ()
) -> list[Stage]:
    """``walks``, four at a time, each at another part of its episode."""
    stages = walks(learn, finish, chunk, groups=4, motions=motions)
    return [replace(stage, batch=4, validation=Validation(100, 20)) for stage in stages]


_WALKS = _walks(900, 700)
# Twice more from a lower rate: the score still rose as it fell.
_POLISH = replace(
    _WALKS[-1],
    name="polish",
    updates=600,
    rate=Rate(3e-3, warmup=10, final=0.02, shape="linear"),
)
_SHINE = replace(_POLISH, name="shine", updates=1_000)
MAPPING = Recipe(
    (_COMPARE, _LOCATE, _STRETCHES, *_WALKS, _POLISH, _SHINE),
    # The same place in the world is half as far from the middle of a grid twice as wide.
    Grown("mapping-15-small", SPIRAL, (1.0, 1.0, 0.5, 0.5)),
)
_LARGE = "df91f9ead321c160b50814d3381ce0bf7213ba6c9d2d353694b8d3a02334982f"
# Walks that are not spirals leave it with nothing but the trail, and so strong a pull that it
# unlearns to compare. So half of the walks stay spirals, and short, until others are known as well.
_WAYS = replace(
    _STRETCHES,
    name="ways",
    lesson=Walks(
        chunk=125,
        groups=4,
        anywhere=True,
        motions=("spiral", "random", "spiral", "curious"),
        growth=Growth(13, factor=1.5, goal=0.8, end=125),
        queries=replace(LATE, foreign=0.25),
    ),
    updates=3_000,
    rate=Rate(2e-3, shape="constant"),
)
FROM_SPIRAL = Recipe(
    (_WAYS, *_walks(500, 700, chunk=125, motions=("random", "curious"))),
    Shipped("mapping-25", _LARGE),
)
_RANDOM = "729ca688c55f6978472a62e713483f1834cb80db09aae92c181acc4656562856"
# Three times as long: untrained it is at F 0.945 there (`mgmem report carry`), and what it lacks is
# to keep what is old.
FROM_SHORTER_WALKS = Recipe(
    (replace(_POLISH, lesson=_walks(1, 1, chunk=125, motions=("random", "curious"))[-1].lesson),),
    Shipped("mapping-25-random", _RANDOM),
)
# Asked for 9x9 cells, of a memory that is known: first the new reader alone. The first 81 steps
# are nine whole patches; there it learns to compare, three questions in ten being for foreign ones.
_NINE = replace(
    REACH,
    name="compare",
    lesson=Walks(
        chunk=133,
        growth=Growth(81, factor=1.5, goal=0.5),
        queries=Queries(share=0.45, limit=40, since=0.5, foreign=0.3),
    ),
    batch=4,
    validation=Validation(250, 8),
    learns=("readers.",),
)
QUERIES_OF_NINE = Recipe(
    (_NINE, *_walks(500, 700)),
    Shipped(
        "mapping-25",
        _LARGE,
        ("memory.", *(f"readers.0.layers.{index}." for index in range(1, 7))),
    ),
)
