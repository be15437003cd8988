"""bAbI: stories told word by word, with questions on the way.

Building the task needs no data; making its stories does. An answer is wanted at each "-", one word
each; a question is right only if all words of its answer are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.tasks.babi_data import TASKS, Ints, Longest, Stories, load_stories
from mgmem.tasks.babi_text import VOCABULARY
from mgmem.tasks.base import ERROR, Batch, Metric, Reads, Shapes, check_piece
from mgmem.tasks.losses import class_loss
from mgmem.tasks.seeds import SeedStream, Split
from mgmem.tasks.story_scores import NUMBERED, StoryScore

LONGEST = 1_397
"""Words of the longest story."""

_ROUND = 50
"""Stories of each task in a round of an evaluation."""


@dataclass(frozen=True)
class Babi:
    """Some of the twenty tasks, or all of them, as one stream of stories."""

    tasks: tuple[int, ...] = tuple(range(1, TASKS + 1))

    def __post_init__(self) -> None:
        if not self.tasks or any(not 1 <= task <= TASKS for task in self.tasks):
            raise UsageError(f"tasks {self.tasks}: give some of 1 to {TASKS}")

    @property
    def name(self) -> str:
        """babi."""
        return "babi"

    @property
    def reads(self) -> Reads:
        """Every story asks at places of its own."""
        return "within"

    @property
    def shapes(self) -> Shapes:
        """Input (words, 1), one-hot; a question is part of the story, so queries are empty."""
        words = len(VOCABULARY)
        return Shapes(input=(words, 1), queries=((0,),), answers=((words,),))

    @property
    def episode_length(self) -> int:
        """Words of the longest story."""
        return LONGEST

    @property
    def metric(self) -> Metric:
        """Wrong answers per question, mean over tasks."""
        return ERROR

    def size(self, split: Split) -> int:
        """How many stories a split has."""
        return len(_order(self.tasks, split))

    def stories(self, split: Split) -> Stories:
        """All stories of a split, those of other tasks too."""
        return load_stories(split)

    def episodes(self, stream: SeedStream, first: int, count: int) -> StoryEpisodes:
        """Stories first, ..., first + count - 1 of a split, in an order that suits evaluation.

        They come in rounds of fifty of every task, as long as it has some, short ones first: any
        number of rounds is a fair sample, and stories beside each other are about as long.
        """
        order = _order(self.tasks, stream.split)
        if first < 0 or count < 1 or first + count > len(order):
            raise UsageError(
                f"stories {first} to {first + count - 1} were asked for: "
                f"{stream.split} has stories 0 to {len(order) - 1}"
            )
        return self.chosen(stream.split, order[first : first + count])

    def chosen(
        self, split: Split, numbers: Ints, longest: Longest = LONGEST, said: Ints | None = None
    ) -> StoryEpisodes:
        """Stories by their numbers among ``stories(split)``.

        longest: cut each after its last answer within so many words. said: (stories, vocabulary)
        what each story says for each word; None: the word itself.
        """
        return StoryEpisodes(self.stories(split), numbers, longest, said)

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Softmax cross-entropy, mean over answer words."""
        return class_loss(answers, batch)

    def new_score(self) -> StoryScore:
        """Errors per question and per answer word, task by task."""
        return StoryScore()


@lru_cache(maxsize=8)
def _order(tasks: tuple[int, ...], split: Split) -> Ints:
    """Numbers of a split's stories in rounds."""
    stories = load_stories(split)
    own = [np.flatnonzero(stories.task == task) for task in sorted(set(tasks))]
    rounds = []
    for start in range(0, max(map(len, own)), _ROUND):
        numbers = np.concatenate([part[start : start + _ROUND] for part in own])
        rounds.append(numbers[np.argsort(stories.lengths[numbers], kind="stable")])
    return np.concatenate(rounds)


class StoryEpisodes:
    """B stories side by side, the short ones followed by no words at all.

    Their numbers say their task: 3,000,017 is story 17 of its split, and of task 3.
    """

    def __init__(
        self,
        stories: Stories,
        numbers: Ints,
        longest: Longest = LONGEST,
        said: Ints | None = None,
    ) -> None:
        lengths = stories.cut(longest)[numbers]
        if not lengths.all():
            raise UsageError(f"a story asks nothing within {longest} words: leave it out")
        self._stories, self._numbers = stories, numbers
        self._said = [np.arange(len(VOCABULARY))] * len(numbers) if said is None else said
        self.lengths = torch.from_numpy(lengths)

    @property
    def length(self) -> int:
        """Words of the longest of them."""
        return int(self.lengths.max())

    def batch(self, start: int, stop: int, times: Tensor | None = None) -> Batch:
        """Words start, ..., stop - 1 and the answers wanted there; ``times`` can only be None."""
        check_piece(start, stop, self.length)
        if times is not None:
            raise UsageError("stories ask at places of their own: leave the times out")
        asked = [self._asked(column, start, stop) for column in range(len(self._numbers))]
        most = max(len(places) for places, _ in asked)
        weight = torch.zeros(1, most, len(asked))
        times, targets = (torch.zeros(most, len(asked), dtype=torch.int64) for _ in range(2))
        for column, (places, answers) in enumerate(asked):
            count = len(places)
            weight[0, :count, column] = 1
            targets[:count, column] = torch.from_numpy(answers)
            times[:count, column] = torch.from_numpy(places)
            times[count:, column] = int(places[-1]) if count else 0
        return Batch(
            inputs=self._one_hot(start, stop),
            reset=None,
            times=times,
            queries=(torch.zeros(most, len(asked), 0),),
            targets=(targets,),
            weight=weight,
            episode=torch.from_numpy(NUMBERED * self._stories.task[self._numbers] + self._numbers),
            lengths=(self.lengths - start).clamp(0, stop - start),
        )

    def _one_hot(self, start: int, stop: int) -> Tensor:
        """(T, B, words, 1)."""
        words = torch.full((stop - start, len(self._numbers)), -1)
        for column, (number, length) in enumerate(zip(self._numbers, self.lengths, strict=True)):
            piece = self._stories.of(int(number))[0][start : min(stop, int(length))]
            words[: len(piece), column] = torch.from_numpy(self._said[column][piece])
        return one_hot(words)

    def _asked(self, column: int, start: int, stop: int) -> tuple[Ints, Ints]:
        """Places, from start, and answers of a story between two words."""
        _, own = self._stories.of(int(self._numbers[column]))
        places = self._stories.places[own]
        within = (places >= start) & (places < stop)
        return places[within] - start, self._said[column][self._stories.answers[own][within]]


def one_hot(words: Tensor) -> Tensor:
    """Numbers of words (...) as (..., words, 1); what is below zero is no word."""
    wanted = torch.arange(len(VOCABULARY), device=words.device)
    return (words.unsqueeze(-1) == wanted).float().unsqueeze(-1)
