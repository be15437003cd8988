"""``mgmem ask [STORY AND QUESTION]``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import tyro
from torch import Tensor, nn

from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.experiments.trained import load
from mgmem.tasks.babi import Babi, one_hot
from mgmem.tasks.babi_text import BLANK, NUMBERS, VOCABULARY, check_known, split_words

_EXAMPLE = "Mary went to the office. Where is Mary?"


@dataclass(frozen=True)
class Ask:
    """Tell a story, ask about it, get the answer with the words that came nearest to it.

    Without a story as an argument it is read from the standard input, or asked for line by line.
    """

    story: tyro.conf.Positional[tuple[str, ...]] = ()
    """Sentences and questions, in quotes or not: Mary went to the office. Where is Mary?"""
    what: str = "babi"
    """An experiment's name (its shipped weights), a run folder (its best weights) or a file."""
    words: int = 1
    """Words of an answer: a path, such as "s,e", has two."""
    likeliest: int = 5
    """How many of the likeliest words are shown."""


class Listener:
    """Takes in a story sentence by sentence, and answers from what it remembers of it.

    A question is answered by reading all from the beginning: a memory that normalises over whole
    stories can not go on from where it was.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._heard: list[str] = []

    def hear(self, words: Sequence[str]) -> None:
        """Take in words."""
        self._heard += words

    @torch.no_grad()
    def answer(self, question: Sequence[str], words: int = 1) -> Tensor:
        """Take in a question: probabilities (words, vocabulary) of each word of its answer."""
        self.hear([*question, *[BLANK] * words])
        numbers = torch.tensor([NUMBERS[word] for word in self._heard])
        times = torch.arange(len(numbers) - words, len(numbers))
        queries = (torch.zeros(words, 1, 0),)
        (logits,), _ = self._model(one_hot(numbers).unsqueeze(1), queries=queries, times=times)
        return logits[:, 0].softmax(1)

    def forget(self) -> None:
        """Begin another story."""
        self._heard = []


def run(arguments: Sequence[str]) -> None:
    """Parse, listen and answer."""
    options = tyro.cli(Ask, prog="mgmem ask", args=list(arguments))
    if options.words < 1 or not 1 <= options.likeliest <= len(VOCABULARY):
        raise UsageError(
            f"--words {options.words}, --likeliest {options.likeliest}: give at least 1, and at "
            f"most {len(VOCABULARY)} likeliest words"
        )
    if not options.story and sys.stdin.isatty():
        _talk(options, _listener(options))
        return
    text = " ".join(options.story) or sys.stdin.read()
    parts = list(sentences(text))
    if not any(part[-1] == "?" for part in parts):
        given = "an empty story" if not parts else "a story without a question"
        raise UsageError(f'{given}: end with one, such as "{_EXAMPLE}"')
    check_known([word for part in parts for word in part])
    listener = _listener(options)
    for part in parts:
        _take(options, listener, part)


def sentences(text: str) -> Iterator[tuple[str, ...]]:
    """Sentences and questions, each with its end; a line ends a sentence too.

    Line numbers and answers, as bAbI's files have them, are left out.
    """
    for line in text.splitlines():
        words = split_words(re.sub(r"^\s*\d+ ", "", line).partition("\t")[0])
        start = 0
        for place, word in enumerate(words):
            if word in (".", "?"):
                yield words[start : place + 1]
                start = place + 1
        if start < len(words):
            yield (*words[start:], ".")


def _listener(options: Ask) -> Listener:
    trained = load(options.what)
    if not isinstance(trained.task, Babi):
        name = trained.experiment.name
        raise UsageError(f"{name} reads no words: mgmem ask is for babi and its kind")
    return Listener(trained.model)


def _talk(options: Ask, listener: Listener) -> None:
    """Line by line; an empty line begins another story, the end of input ends it."""
    print(f'Tell and ask, a line at a time, such as "{_EXAMPLE}" An empty line: another story.')
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if not line.strip():
            listener.forget()
            print("another story:")
            continue
        try:
            parts = list(sentences(line))
            check_known([word for part in parts for word in part])
        except UsageError as error:
            print(error)
            continue
        for part in parts:
            _take(options, listener, part)


def _take(options: Ask, listener: Listener, words: Sequence[str]) -> None:
    if words[-1] != "?":
        listener.hear(words)
        return
    probabilities = listener.answer(words, options.words)
    said = ",".join(VOCABULARY[i] for i in probabilities.argmax(1).tolist())
    print(f"{' '.join(words[:-1])}? {said}")
    columns = ["word"] if options.words == 1 else [f"word {i + 1}" for i in range(options.words)]
    table = new_table(*(name for column in columns for name in (column, "probability")))
    best = probabilities.topk(options.likeliest)
    for rank in range(options.likeliest):
        row: list[str] = []
        for values, places in zip(*best, strict=True):
            row += [VOCABULARY[int(places[rank])], f"{float(values[rank]):.4f}"]
        table.add_row(*row)
    print_table(table)
