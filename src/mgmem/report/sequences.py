"""Recall and sort episodes as pictures: what was shown, asked, wanted and answered."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.model import ask
from mgmem.report import style
from mgmem.report.style import Axes, Figure, Rectangle
from mgmem.tasks.base import Task
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED

_RIGHT, _WRONG = style.BLACK, style.VERMILLION
_ASKED, _FOLLOWED = style.BLUE, style.ORANGE


@dataclass(frozen=True)
class Answered:
    """One episode with its answers.

    inputs: (T, C, H, W). queries: (Q, C, H, W). targets: (Q, 3, 3) bits or (Q,) classes.
    answers: probabilities, (Q, 3, 3) or (Q, classes). places: (Q,) where each query and its
    answer stand below the inputs.
    """

    name: str
    episode: int
    inputs: Tensor
    queries: Tensor
    targets: Tensor
    answers: Tensor
    places: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def classes(self) -> bool:
        """Whether answers are classes rather than bits."""
        return not self.targets.is_floating_point()


@torch.no_grad()
def answer_sequence(
    model: nn.Module,
    task: Task,
    episode: int = 0,
    *,
    name: str = "sequence",
    stream: SeedStream | None = None,
) -> Answered:
    """Run a sequence and ask what its task asks after it."""
    if episode < 0:
        raise UsageError(f"episode {episode}: episodes are numbered from 0")
    if task.reads != "after":
        raise UsageError(f"{name} asks during its episodes; this is for tasks that ask at the end")
    run = task.episodes(stream or SeedStream(TEST_SEED, "test"), episode, 1)
    batch = run.batch(0, run.length)
    moved = batch.to(next(model.parameters()).device)
    model.eval()
    (logits,), _ = ask(model, moved)
    inputs, queries, targets = batch.inputs[:, 0], batch.queries[0][:, 0], batch.targets[0][:, 0]
    logits = logits[:, 0].cpu().float()
    classes = not targets.is_floating_point()
    return Answered(
        name=name,
        episode=episode,
        inputs=inputs,
        queries=queries,
        targets=targets if classes else targets[:, 0],
        answers=logits.softmax(1) if classes else logits[:, 0].sigmoid(),
        places=_places(inputs, queries),
    )


def _places(inputs: Tensor, queries: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Columns of the queries and of the answers: an item asked about stands below itself."""
    if len(queries) > 1:
        return tuple(range(len(queries))), tuple(range(len(queries)))
    named = next(i for i, item in enumerate(inputs) if torch.equal(item, queries[0]))
    return (named,), (named + 1,)


def draw_sequence(shown: Answered) -> Figure:
    """Rows below each other: shown, asked (if anything), wanted, answered."""
    count = len(shown.inputs)
    asks = bool(shown.queries.any())
    rows = ["shown", *(["asked:\nwhat followed?"] if asks else []), "wanted", "answered"]
    with style.look():
        cell = min(1.0, 15 / count)
        figure = style.new_figure(cell * count + 1.6, (cell + 0.1) * len(rows) + 1.1)
        figure.suptitle(f"{shown.name}, episode {shown.episode}", fontsize=14, fontweight="bold")
        panels = figure.subplots(len(rows), 1)
        for axes, row in zip(panels, rows, strict=True):
            axes.set(xlim=(-0.5, count - 0.5), ylim=(0.5, -0.5), aspect="equal", yticks=[])
            axes.set_xticks([])
            axes.set_ylabel(row, rotation=0, ha="right", va="center", fontsize=11)
            axes.spines[:].set_visible(False)
        _draw_inputs(panels[0], shown)
        if asks:
            for place, query in zip(shown.places[0], shown.queries, strict=True):
                _patch(panels[1], place, query[0], _ASKED)
        _draw_answers(panels[-2], panels[-1], shown)
        panels[-1].set_xlabel(_verdict(shown), fontsize=11)
    return figure


def _draw_inputs(axes: Axes, shown: Answered) -> None:
    marks = {}
    if shown.queries.any():
        marks = dict.fromkeys(shown.places[0], _ASKED) | dict.fromkeys(shown.places[1], _FOLLOWED)
    for place, item in enumerate(shown.inputs):
        _patch(axes, place, item[0], marks.get(place))
    if shown.inputs.shape[1] == 2:
        axes.set_xticks(range(len(shown.inputs)))
        labels = [f"{float(item[1, 0, 0]):+.2f}" for item in shown.inputs]
        axes.set_xticklabels(labels, rotation=90 if len(labels) > 20 else 0, fontsize=8)
        axes.tick_params(length=0)
        axes.set_xlabel("priority: the lowest is wanted first")


def _draw_answers(wanted: Axes, said: Axes, shown: Answered) -> None:
    for place, target, answer in zip(shown.places[1], shown.targets, shown.answers, strict=True):
        if shown.classes:
            best = int(answer.argmax())
            color = _RIGHT if best == int(target) else _WRONG
            wanted.text(place, 0, str(int(target)), ha="center", va="center", fontsize=20)
            said.text(
                place, -0.08, str(best), ha="center", va="center", fontsize=20, color=color,
                fontweight="normal" if color == _RIGHT else "bold",
            )  # fmt: skip
            said.text(
                place, 0.4, f"{float(answer[best]):.0%}", ha="center", va="center", fontsize=8
            )
            continue
        _patch(wanted, place, target, _FOLLOWED if shown.queries.any() else None)
        _patch(said, place, answer)
        side = 0.84 / len(target)
        for row, column in ((answer >= 0.5) != (target >= 0.5)).nonzero().tolist():
            corner = (place - 0.42 + column * side, -0.42 + row * side)
            said.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=_WRONG, linewidth=2))


def _patch(axes: Axes, place: int, values: Tensor, mark: str | None = None) -> None:
    """(H, W) values between 0 (white) and 1 (black) at a place of the row, in a frame."""
    extent = (place - 0.42, place + 0.42, 0.42, -0.42)
    axes.imshow(values.numpy(), cmap="gray_r", vmin=0, vmax=1, extent=extent, aspect="equal")
    frame = Rectangle((place - 0.42, -0.42), 0.84, 0.84, fill=False, edgecolor=mark or style.GREY)
    frame.set_linewidth(2.5 if mark else 1.0)
    axes.add_patch(frame)


def _verdict(shown: Answered) -> str:
    if shown.classes:
        wrong = int((shown.answers.argmax(1) != shown.targets).sum())
        return f"{wrong} of {len(shown.targets)} classes wrong"
    wrong = int(((shown.answers >= 0.5) != (shown.targets >= 0.5)).sum())
    return f"{wrong} of {shown.targets.numel()} bits wrong"
