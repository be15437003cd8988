"""A story as a picture: its words, what the memory does with them, and when it knows the answers.

And the table of all tasks, from the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mgmem.errors import UsageError
from mgmem.experiments import PaperRow, find
from mgmem.experiments.records import Record
from mgmem.nn.norms import SequenceNorm
from mgmem.nn.state import MemoryState
from mgmem.tasks.babi import Babi, one_hot
from mgmem.tasks.babi_data import NAMES, TASKS
from mgmem.tasks.babi_text import BLANK, NUMBERS, VOCABULARY
from mgmem.tasks.seeds import SeedStream
from mgmem.tasks.story_scores import NUMBERED
from mgmem.training.evaluation import TEST_SEED

if TYPE_CHECKING:
    from mgmem.report.style import Figure

_MOST_WORDS = 160


@dataclass(frozen=True)
class Told:
    """A story, word by word.

    words: as told, "-" where an answer is wanted. activity: for each level of the memory's deepest
    layer (positions, words), mean size of the hidden state over channels; () if there is no such.
    wanted, said: for each "-" the word. known: (words,) probability of the next wanted word, had
    the question ended there.
    """

    name: str
    task: int
    words: tuple[str, ...]
    activity: tuple[npt.NDArray[np.float32], ...]
    places: tuple[int, ...]
    wanted: tuple[str, ...]
    said: tuple[str, ...]
    known: npt.NDArray[np.float32]


@torch.no_grad()
def tell(model: nn.Module, task: Babi, episode: int = 0, *, name: str = "babi") -> Told:
    """Read a test story word by word, and ask after each what would be said now."""
    if episode < 0:
        raise UsageError(f"episode {episode}: episodes are numbered from 0")
    if any(isinstance(module, SequenceNorm) for module in model.modules()):
        raise UsageError(
            f"{name} normalises over whole stories and can not be watched word by word: babi can"
        )
    episodes = task.episodes(SeedStream(TEST_SEED, "test"), episode, 1)
    batch = episodes.batch(0, episodes.length)
    places, targets = batch.times[:, 0].tolist(), batch.targets[0][:, 0].tolist()
    model.eval()
    state: Any = None
    moments, known, said = [], [], []
    blank = one_hot(torch.tensor([[NUMBERS[BLANK]]]))
    upcoming = 0
    for step, word in enumerate(batch.inputs):
        asked = step in places
        chances, state = _step(model, word[None], state, int(asked))
        moments.append(_activity(state))
        if not asked:  # what would be said, were a blank next
            chances, _ = _step(model, blank, state, 1)
        (chances,) = chances
        known.append(float(chances[targets[upcoming]]) if upcoming < len(targets) else np.nan)
        if asked:
            said.append(VOCABULARY[int(chances.argmax())])
            upcoming += 1
    return Told(
        name=name,
        task=int(batch.episode[0]) // NUMBERED if batch.episode is not None else 0,
        words=tuple(VOCABULARY[int(w)] for w in batch.inputs[:, 0, :, 0].argmax(1)),
        activity=tuple(np.stack(level, 1) for level in zip(*moments, strict=True)),
        places=tuple(places),
        wanted=tuple(VOCABULARY[target] for target in targets),
        said=tuple(said),
        known=np.array(known, np.float32),
    )


def _step(model: nn.Module, word: torch.Tensor, state: Any, asked: int) -> tuple[torch.Tensor, Any]:
    """Probabilities (asked, words) after one word (1, 1, words, 1), and the state."""
    queries, times = (torch.zeros(asked, 1, 0),), torch.zeros(asked, dtype=torch.int64)
    (logits,), state = model(word, state, queries=queries, times=times)
    return logits[:, 0].softmax(1), state


def _activity(state: Any) -> list[npt.NDArray[np.float32]]:
    """(positions,) a level of the deepest layer; none for models whose memory is no grid."""
    if not isinstance(state, MemoryState):
        return []
    return [grid[0].abs().mean(0).numpy() for grid in state.layers[-1].h]


def draw_story(told: Told) -> Figure:
    """Levels of the memory below each other, then what is known; words along the time axis."""
    from mgmem.report import style

    first = max(0, len(told.words) - _MOST_WORDS)
    words = told.words[first:]
    heights = [0.35 + 0.55 * len(level) / 8 for level in told.activity]
    with style.look():
        figure = style.new_figure(max(7.0, 0.17 * len(words) + 2.0), sum(heights) + 3.6)
        cut = f", its last {_MOST_WORDS} words" if first else ""
        figure.suptitle(
            f"{told.name}: task {told.task}, {NAMES[told.task - 1]}{cut}",
            fontsize=14, fontweight="bold",
        )  # fmt: skip
        panels = figure.subplots(
            len(heights) + 1, 1, sharex=True, squeeze=False,
            gridspec_kw={"height_ratios": [*heights, 1.6]},
        )[:, 0]  # fmt: skip
        highest = max((float(level.max()) for level in told.activity), default=1.0)
        for number, (axes, level) in enumerate(zip(panels, told.activity, strict=False)):
            image = axes.imshow(
                level[:, first:], cmap=style.VALUES, vmin=0, vmax=highest, aspect="auto",
                interpolation="nearest",
            )  # fmt: skip
            axes.set(yticks=[0] if len(level) == 1 else [0, len(level) - 1])
            axes.set_ylabel(f"level {number}", rotation=0, ha="right", va="center")
            if number == len(told.activity) - 1:
                figure.colorbar(image, ax=panels[: len(heights)], pad=0.01, label="mean |h|")
        _draw_known(panels[-1], told, first)
        panels[-1].set_xticks(range(len(words)), words, rotation=90, fontsize=8)
        panels[-1].set_xlim(-0.5, len(words) - 0.5)
    return figure


def _draw_known(axes: Any, told: Told, first: int) -> None:
    """A line for each answer: the probability of the word wanted next, were it asked there."""
    from mgmem.report import style

    start = 0
    for place, wanted, said in zip(told.places, told.wanted, told.said, strict=True):
        steps = np.arange(start, place + 1)
        color = style.BLUE if wanted == said else style.VERMILLION
        shown = steps >= first
        axes.plot(steps[shown] - first, told.known[steps][shown], color=color, linewidth=1.4)
        if place >= first:
            axes.plot(place - first, told.known[place], "o", color=color, markersize=5)
            text = wanted if wanted == said else f"{wanted}\n(said {said})"
            axes.annotate(
                text, (place - first, told.known[place]), xytext=(0, 7),
                textcoords="offset points", ha="center", fontsize=9, color=color,
            )  # fmt: skip
        start = place + 1
    axes.set(ylim=(0, 1.3), yticks=[0, 0.5, 1])
    axes.set_ylabel("probability of\nthe next answer")


def section(records: Sequence[Record]) -> str:
    """All that stands between the markers of the page: a table, if there is a record."""
    papers = [(name, find(name).row) for name in ("babi", "babi-dnc")]
    tables = [
        task_table(max(own, key=lambda record: record.date), papers)
        for name, _ in papers
        if (own := [record for record in records if record.experiment == name])
    ]
    return "\n\n".join(tables)


def task_table(record: Record, papers: Sequence[tuple[str, PaperRow | None]]) -> str:
    """Markdown: errors of every task in percent, a record's with their interval, and the paper's.

    papers: names and rows of the paper's systems.
    """
    keys = [f"error/{number}" for number in range(1, TASKS + 1)]
    names = [f"{number} {name}" for number, name in enumerate(NAMES, 1)]
    mine = f"`{record.experiment}` (95% interval)"
    rows = [("task", mine, *(f"paper's `{name}`" for name, _ in papers))]
    rows.append((":--", "--:", *("--:" for _ in papers)))
    for name, key in zip(
        [*names, "mean error", "failed tasks (> 5%)"], [*keys, "error", "failed"], strict=True
    ):
        printed = _count if key == "failed" else _percent
        estimate = record.metrics[key]
        value, low, high = (printed(estimate[end]) for end in ("value", "low", "high"))
        theirs = ("-" if row is None else printed(row.figures[key]) for _, row in papers)
        rows.append((name, f"**{value}** [{low}, {high}]", *theirs))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _count(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
