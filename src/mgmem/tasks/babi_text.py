"""bAbI's words: the vocabulary, and text to words and back.

Stories are read as the published DNC does: lower case, line numbers dropped, "." and "?" words of
their own, and each word of an answer replaced by "-", where that word is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from mgmem.errors import UsageError

BLANK = "-"

_WORDS = """
    - . ? a above afraid after afternoon afterwards and antoine apple are back bathroom bedroom
    before below bernhard bigger bill blue bored box brian carrying cat cats chest chocolate
    chocolates cinema color container daniel did discarded do does down dropped e east either emily
    evening fit fits following football fred frog from garden gave gertrude get give go got grabbed
    gray green greg hallway handed he how hungry in inside is jason jeff jessica john journeyed
    julie julius kitchen left lily lion longer many mary maybe mice milk morning mouse moved n no
    none north not nothing objects of office one or pajamas park passed picked pink put received
    rectangle red rhino right s sandra school she sheep south sphere square suitcase sumit swan than
    that the then there they thirsty this three tired to took travelled triangle two up w was went
    west what where white who why will winona wolf wolves yann yellow yes yesterday you
    """

VOCABULARY: tuple[str, ...] = tuple(_WORDS.split())
"""All 159 words of the twenty tasks, training and test; a word's number is its place here."""

NUMBERS = {word: number for number, word in enumerate(VOCABULARY)}

_WORD = re.compile(r"[^\s.?]+|[.?]")


class Line(NamedTuple):
    """A statement, or a question with its answer: a word for each part between commas."""

    words: tuple[str, ...]
    answer: tuple[str, ...] = ()


def split_words(text: str) -> tuple[str, ...]:
    """``"Where is Mary?"`` as ``("where", "is", "mary", "?")``."""
    return tuple(_WORD.findall(text.lower()))


def check_known(words: Sequence[str]) -> None:
    """An error that names the words that are not in the vocabulary."""
    unknown = [word for word in dict.fromkeys(words) if word not in NUMBERS or word == BLANK]
    if unknown:
        named = ", ".join(map(repr, unknown))
        raise UsageError(
            f"unknown {'word' if len(unknown) == 1 else 'words'} {named}: bAbI's stories are told "
            f"with {len(VOCABULARY)} words, such as {', '.join(VOCABULARY[11:16])}"
        )


def parse_stories(text: str, source: str) -> list[list[Line]]:
    """The stories of a bAbI file: a line numbered 1 begins a story, questions end in an answer.

    source: what the text is called in errors.
    """
    stories: list[list[Line]] = []
    expected = "1"
    for number, line in enumerate(text.splitlines(), 1):
        count, _, rest = line.partition(" ")
        if count == "1":
            story: list[Line] = []
            stories.append(story)
        elif count != expected:
            raise UsageError(
                f"{source}, line {number} begins with {count!r}: "
                "lines of a story are numbered 1, 2, 3, ..."
            )
        try:
            story.append(_parse_line(rest))
        except UsageError as error:
            raise UsageError(f"{source}, line {number}: {error}") from None
        expected = str(len(story) + 1)
    if not stories:
        raise UsageError(f"{source} is empty: it should hold stories, a numbered sentence a line")
    for number, story in enumerate(stories, 1):
        if not any(line.answer for line in story):
            raise UsageError(f"{source}, story {number} asks nothing: it can not be learned from")
    return stories


@lru_cache(maxsize=100_000)  # the stories of a task repeat their sentences
def _parse_line(rest: str) -> Line:
    text, *columns = rest.split("\t")
    words = split_words(text)
    if not words:
        raise UsageError("there are no words")
    if words[-1] != "?" and not columns:
        check_known(words)
        return Line(words)
    answer = tuple(word.strip().lower() for word in columns[0].split(",")) if columns else ()
    if not answer or not all(answer):
        raise UsageError("a question without an answer: a tab and the answer should follow it")
    check_known((*words, *answer))
    return Line(words, answer)
