"""Names that stories could as well be told with: who, where and what of each task.

bAbI's stories come out of a simulation that treats all people of a task alike, all places and all
things. So a story with names exchanged is as likely as the story itself, and its answers, exchanged
likewise, are as right. There are 1,800 stories of most tasks; told anew each time they can not be
learned by heart.
"""

from __future__ import annotations

import numpy as np

from mgmem.tasks.babi_data import Ints
from mgmem.tasks.babi_text import NUMBERS, VOCABULARY

Alike = tuple[tuple[str, ...], ...]
"""Names that may stand for each other; each with its other forms, in one order for all."""


def _names(words: str) -> Alike:
    return tuple(tuple(name.split("/")) for name in words.split())


_FOUR, _FAMILY, _FRIENDS = map(
    _names, ("daniel john mary sandra", "bill fred jeff mary", "bill fred julie mary")
)
_ROOMS = _names("bathroom bedroom garden hallway kitchen office")
_TOWN = _names("bedroom cinema kitchen office park school")
_THINGS = _names("apple football milk")
# A mirror turns all directions of a story at once.
_NORTH, _EAST = _names("north/n south/s"), _names("east/e west/w")

EXCHANGED: dict[int, tuple[Alike, ...]] = {
    1: (_FOUR, _ROOMS),
    2: (_FOUR, _ROOMS, _THINGS),
    3: (_FOUR, _ROOMS, _THINGS),
    4: (_ROOMS, _NORTH, _EAST),
    5: (_FAMILY, _ROOMS, _THINGS),
    6: (_FOUR, _ROOMS, _THINGS),
    7: (_FOUR, _ROOMS, _THINGS),
    8: (_FOUR, _ROOMS, _THINGS),
    9: (_FOUR, _ROOMS),
    10: (_FRIENDS, _TOWN),
    # He and she have to stay right.
    11: (_names("daniel john"), _names("mary sandra"), _ROOMS),
    12: (_FOUR, _ROOMS),
    13: (_FOUR, _ROOMS),
    14: (_FRIENDS, _TOWN),
    # One sheep and many are one word, so sheep stay what they are.
    15: (_names("emily gertrude jessica winona"), _names("cat/cats mouse/mice wolf/wolves")),
    16: (
        _names("bernhard brian greg julius lily"),
        _names("frog lion rhino swan"),
        _names("gray green white yellow"),
    ),
    17: (_names("above below"), _names("left right")),
    # Things have the sizes that they have.
    18: (),
    19: (_ROOMS, _NORTH, _EAST),
    # Who is thirsty goes to the kitchen.
    20: (_names("antoine jason sumit yann"),),
}
"""For each task, the names that may stand for each other."""


def renaming(task: int, random: np.random.Generator) -> Ints:
    """(words,) what each word of the vocabulary becomes: names of a task, exchanged at random."""
    said = np.arange(len(VOCABULARY))
    for alike in EXCHANGED[task]:
        for name, other in zip(alike, random.permutation(len(alike)), strict=True):
            for word, instead in zip(name, alike[other], strict=True):
                said[NUMBERS[word]] = NUMBERS[instead]
    return said
