"""bAbI v1.2, the twenty tasks of en-10k, from the archive of its release; three splits.

Every file is checked by its git blob id, however the archive was packed. One file is known in two
forms: task 3's training stories, whole (10,000 questions) or a part of them (1,925).
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.tasks.babi_text import BLANK, NUMBERS, Line, parse_stories
from mgmem.tasks.data import DataFile, read_data_file
from mgmem.tasks.seeds import Split

Ints = npt.NDArray[np.int64]

_FOLDER = "tasks_1-20_v1-2/en-10k"
_HELD_OUT = 10
"""One training story in so many is for validation."""

_WHOLE_THREE = "9b2b35ca4357ea8ee44692c71ec71892edf51399"
_PART_OF_THREE = "07ebd7881820ecbfd6194f6cb7e37b8c4b8d69e1"

# Name of a task, git blob ids of its training and of its test file.
_FILES: tuple[tuple[str, str, str], ...] = (
    (
        "single-supporting-fact",
        "6bfc85482947215cd31b84ebd0c1ab766145186c",
        "8f9586848f7b0afdccb25328feeb04d561c31756",
    ),
    (
        "two-supporting-facts",
        "2aa5ecf822285157d9f7b4de5111c07bd2282f34",
        "6deccd0cf07947ff525839a7b4643c6e0afe1b92",
    ),
    (
        "three-supporting-facts",
        _PART_OF_THREE,
        "b7c8e4483963c55a6170a524ce4ae67a33f355f2",
    ),
    (
        "two-arg-relations",
        "02fb57b654192ee726baa908f168eecbf08998c8",
        "800d7ea7cd1e432c8a617ff40a329e144f6b2893",
    ),
    (
        "three-arg-relations",
        "424ec34bdc7bb4a8679f989abe73fa0ce8aa58dc",
        "ed9758be5dff62875321aa2ac2f5a35ae785b620",
    ),
    (
        "yes-no-questions",
        "57deb7ad6efaac9f3c08d89d732e5af5682b41fb",
        "da25e9fd5bb7d69c7150b208051b1413fd91ff2b",
    ),
    (
        "counting",
        "c2112050f918229878d3eb15c4f3e9262ecdcd18",
        "970737f3bff6896c73e0e9cdf4050bd9fb38dcf8",
    ),
    (
        "lists-sets",
        "ed8d5856164d2fd23245c79acfb137c36e96fea8",
        "322949b2623507662161955156eb52d304c2a8e4",
    ),
    (
        "simple-negation",
        "8449206274de8befc56617356a960a3ed481bab5",
        "a78006357cd34214a78ec1268b066eae920ff437",
    ),
    (
        "indefinite-knowledge",
        "b278e8534a1b44af49e23b5a8000878598fa8ec4",
        "f6a84c1e52223c6edca549f6ee0ea168320d2f03",
    ),
    (
        "basic-coreference",
        "ff530d4de05dc753a0fe9d9638aa761ed855b81e",
        "c9feb150855483c587c5a825211fc306d4cfebe3",
    ),
    (
        "conjunction",
        "eed62eb333e67c508928a47ec29f6372e93e0bfb",
        "f1d9b7fb0e2d39af3b91603395951c921a45ce3b",
    ),
    (
        "compound-coreference",
        "a0540e23a7762254fffe82aba7e8d9c7f37d5ffc",
        "f42e5b137c2cd1c40511f77081a3e654d85d6c49",
    ),
    (
        "time-reasoning",
        "35350c2fbfcc081218731cf3929f3e56c169360c",
        "c0c88cd92b690d6c533c3e532cb8a9e38ae8f1bf",
    ),
    (
        "basic-deduction",
        "452c1697ec6282c5af366322e1f5255d745aef73",
        "a22e0cd20d0fb602ed8392c30dc0aed65a18ba79",
    ),
    (
        "basic-induction",
        "558683aafde405dc1a26746a7230555305203e68",
        "5b1e89531673a0512cbf8f37716beef92c478b96",
    ),
    (
        "positional-reasoning",
        "a0f420d46b144cca626ed5c7abefe6c76e9b4a0d",
        "91c50c4b126f0f7653d60920895f98e4d50a78c6",
    ),
    (
        "size-reasoning",
        "8ca079cc3d5ec6d66951279c116e19a33c25d8c3",
        "41ecb574f0d4934603d97c12420f7f57d52ae816",
    ),
    (
        "path-finding",
        "c9ec29b500eaf11f977d24c38aa0504f09f00cbf",
        "fe316702f1bd930bf17257fac3513ec3ceac628c",
    ),
    (
        "agents-motivations",
        "7406f24b144a1e57006e7a7cf9420143cf7979b3",
        "1f4c6ea45f022158f5e0bd8ae0b7b78431c8d334",
    ),
)

TASKS = len(_FILES)
Longest = int | tuple[int, ...]
"""Words within which stories are cut: the same for all tasks, or one number for each."""
NAMES: tuple[str, ...] = tuple(name.replace("-", " ") for name, _, _ in _FILES)
"""What each task is called, task 1 first."""


@dataclass(frozen=True)
class _Archive(DataFile):
    """The archive, checked file by file: there is more than one way to pack it."""

    def fault(self, content: bytes) -> str | None:
        try:
            _unpacked(content)
        except UsageError as error:
            return str(error)
        return None


_ARCHIVE = _Archive(
    "babi",
    "tasks_1-20_v1-2.tar.gz",
    "",
    "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz",
)


@dataclass(frozen=True, eq=False)
class Stories:
    """Stories one after another.

    words: numbers of all words, "-" where an answer is wanted. first: (stories + 1,) where each
    story begins among them. task: (stories,) from 1. places: where, from the story's beginning,
    each answer word is wanted; answers: which; question: the number of its question in the story.
    first_answer: (stories + 1,) where each story's answers begin among those.
    """

    words: npt.NDArray[np.uint8]
    first: Ints
    task: Ints
    places: Ints
    answers: npt.NDArray[np.uint8]
    question: Ints
    first_answer: Ints

    def __len__(self) -> int:
        return len(self.task)

    @property
    def lengths(self) -> Ints:
        """(stories,) words of each."""
        return np.diff(self.first)

    @property
    def questions(self) -> Ints:
        """(stories,) questions of each."""
        return self.question[self.first_answer[1:] - 1] + 1

    def of(self, story: int) -> tuple[npt.NDArray[np.uint8], slice]:
        """A story's words, and which of all answers are its own."""
        words = self.words[self.first[story] : self.first[story + 1]]
        return words, slice(int(self.first_answer[story]), int(self.first_answer[story + 1]))

    @property
    def soonest(self) -> Ints:
        """(stories,) words of each up to its first answer."""
        first = np.where(self.question == 0, self.places + 1, 0)
        return np.maximum.reduceat(first, self.first_answer[:-1])

    def cut(self, longest: Longest) -> Ints:
        """(stories,) words of each up to its last answer that ends within ``longest`` words.

        Stories that are no longer than that are whole; 0: nothing is answered so early.
        """
        reached = np.maximum.reduceat(
            np.where(_answered(self, longest), self.places + 1, 0), self.first_answer[:-1]
        )
        return np.where(self.lengths <= self._limits(longest), self.lengths, reached)

    def asked(self, longest: Longest) -> Ints:
        """(stories,) questions of each that are answered within ``longest`` words."""
        return np.add.reduceat(_answered(self, longest), self.first_answer[:-1], dtype=np.int64)

    def _limits(self, longest: Longest) -> Ints:
        return np.broadcast_to(longest, TASKS)[self.task - 1]

    def take(self, chosen: Iterable[int]) -> Stories:
        """Some of the stories, in the order given."""
        which = np.fromiter(chosen, np.int64)

        def own(values: npt.NDArray[Any], first: Ints) -> npt.NDArray[Any]:
            ends = zip(first[which].tolist(), first[which + 1].tolist(), strict=True)
            return np.concatenate([values[start:end] for start, end in ends])

        return Stories(
            words=own(self.words, self.first),
            first=_starts(self.lengths[which]),
            task=self.task[which],
            places=own(self.places, self.first_answer),
            answers=own(self.answers, self.first_answer),
            question=own(self.question, self.first_answer),
            first_answer=_starts(np.diff(self.first_answer)[which]),
        )


def _starts(sizes: Ints | Sequence[int]) -> Ints:
    """Where each of several parts begins among all, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


@lru_cache(maxsize=4)
def _answered(stories: Stories, longest: Longest) -> npt.NDArray[np.bool_]:
    """Which of all answer words end a question within ``longest`` words of their story."""
    # Answers are in order, so a question's last word is the one before another begins.
    last = np.append(stories.question[1:] != stories.question[:-1], True)
    last[stories.first_answer[1:] - 1] = True
    limits = np.repeat(stories._limits(longest), np.diff(stories.first_answer))
    found: npt.NDArray[np.bool_] = last & (stories.places < limits)
    return found


def load_stories(split: Split) -> Stories:
    """The stories a split may use.

    "test": the test files. "train" and "valid": the training files; about every tenth story is
    for validation. Which ones depends on their words alone, so a story that a file repeats is
    always on one side.
    """
    return _test() if split == "test" else _training()[split]


def task_three_is_whole() -> bool:
    """Whether the archive has all training stories of task 3."""
    return _blob_id(_read_archive()[2][0]) == _WHOLE_THREE


def note() -> str:
    """What has to be said beside a result on all twenty tasks; "" if nothing has."""
    if task_three_is_whole():
        return ""
    return "task 3 was trained on 385 stories (1,925 of the release's 10,000 questions)"


def encode(story: Sequence[Line]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Words, places of answers, answers, and the question that each of them belongs to."""
    words: list[int] = []
    places: list[int] = []
    answers: list[int] = []
    question: list[int] = []
    asked = 0
    for line in story:
        words += _numbers(line.words)
        if line.answer:
            count = len(line.answer)
            places += range(len(words), len(words) + count)
            answers += _numbers(line.answer)
            question += [asked] * count
            words += [NUMBERS[BLANK]] * count
            asked += 1
    return words, places, answers, question


@lru_cache(maxsize=100_000)  # the stories of a task repeat their sentences
def _numbers(words: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(NUMBERS[word] for word in words)


# Apart, because reading the training files takes ten times as long as reading the others.
@lru_cache(maxsize=1)
def _training() -> dict[Split, Stories]:
    stories = _encoded([training for training, _ in _read_archive()])
    held_out = np.array([_is_held_out(stories.of(i)[0]) for i in range(len(stories))])
    return {
        "train": stories.take(np.flatnonzero(~held_out).tolist()),
        "valid": stories.take(np.flatnonzero(held_out).tolist()),
    }


@lru_cache(maxsize=1)
def _test() -> Stories:
    return _encoded([test for _, test in _read_archive()])


def _is_held_out(words: npt.NDArray[np.uint8]) -> bool:
    digest = hashlib.blake2b(words.tobytes(), digest_size=8, salt=b"validation").digest()
    return int.from_bytes(digest, "little") % _HELD_OUT == 0


def _encoded(files: Sequence[bytes]) -> Stories:
    """All stories of one file for each task."""
    words = bytearray()  # a word's number is below 256
    tasks: list[int] = []
    lengths: list[int] = []
    counts: list[int] = []
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for task, (content, (name, _, _)) in enumerate(zip(files, _FILES, strict=True), 1):
        for story in parse_stories(content.decode(), f"qa{task}_{name}"):
            told, *rest = encode(story)
            words += bytes(told)
            tasks.append(task)
            lengths.append(len(told))
            counts.append(len(rest[0]))
            for column, part in zip(columns, rest, strict=True):
                column += part
    places, answers, question = (np.array(column) for column in columns)
    return Stories(
        words=np.frombuffer(words, np.uint8),
        first=_starts(lengths),
        task=np.array(tasks),
        places=places,
        answers=answers.astype(np.uint8),
        question=question,
        first_answer=_starts(counts),
    )


@lru_cache(maxsize=1)
def _read_archive() -> tuple[tuple[bytes, bytes], ...]:
    return _unpacked(read_data_file(_ARCHIVE))


def _unpacked(content: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The training and the test file of every task; an error naming the first that is not right."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            files = {m.name: _content(archive, m) for m in archive if _FOLDER in m.name}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UsageError(f"it is no archive of bAbI ({error})") from None
    pairs = []
    for task, (name, *ids) in enumerate(_FILES, 1):
        pair = []
        for part, expected in zip(("train", "test"), ids, strict=True):
            path = f"{_FOLDER}/qa{task}_{name}_{part}.txt"
            if path not in files:
                raise UsageError(f"it holds no {path}")
            known = {_WHOLE_THREE, _PART_OF_THREE} if expected == _PART_OF_THREE else {expected}
            found = _blob_id(files[path])
            if found not in known:
                raise UsageError(f"the git blob id of its {path} is {found}, not {expected}")
            pair.append(files[path])
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def _blob_id(content: bytes) -> str:
    head = b"blob %d\0" % len(content)
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
