"""A walk as a film: the world, what is known of it, the memory, the policy, and an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.experiments.explore import Exploration, Mapper
from mgmem.report import style
from mgmem.report.animation import Frame, save_animation
from mgmem.report.memory import UNKNOWN, WALL, History, Moment, remember
from mgmem.report.style import Axes, Line2D, LineCollection, Patch
from mgmem.rl.agent import Agent
from mgmem.rl.coverage import Log, take_walks
from mgmem.rl.walks import Observation
from mgmem.tasks.mapping import Mapping, MappingEpisodes
from mgmem.tasks.maze import Walls
from mgmem.tasks.seeds import Ints, SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps

_MOST_FRAMES = 100
_ACTIONS = ("up", "down", "left", "right")


@dataclass(frozen=True)
class Story:
    """One walk: what was remembered at some moments, and what the policy thought at every step.

    walls: (n, n); chances: (T, 4), of each action; coverage: (T + 1,).
    """

    history: History
    walls: Walls
    start: int
    chances: npt.NDArray[np.float32]
    coverage: npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Walked(Mapping):
    """The mapping task about walks that were already taken."""

    log: Log | None = None

    def episodes(self, stream: SeedStream, first: int, count: int) -> MappingEpisodes:
        assert self.log is not None
        return self.follow(self.log.keys, self.log.walls, self.log.path, first)


class _Recorder:
    """A walker that does what an agent does and writes down its chances."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.chances = agent, list[npt.NDArray[np.float32]]()

    def act(self, observation: Observation, fresh: npt.NDArray[np.bool_]) -> Ints:
        if fresh.all():
            self.agent.state = None
        glimpse = self.agent.look(observation, fresh)
        self.chances.append(self.agent.judge(glimpse)[0].softmax(1)[0].numpy())
        actions: Ints = self.agent.decide(glimpse)[0].numpy()
        return actions


def watch_walk(exploration: Exploration, mapper: Mapper, agent: Agent, episode: int = 0) -> Story:
    """Let an agent walk through a test maze, and ask its memory on the way."""
    if episode < 0:
        raise UsageError(f"maze {episode}: they are numbered from 0")
    recorder = _Recorder(agent)
    log = take_walks(
        recorder,
        world=exploration.world,
        steps=exploration.steps,
        count=1,
        seed=TEST_SEED + episode,
    )
    task = mapper.task
    known = {name: getattr(task, name) for name in task.__dataclass_fields__}
    steps = query_steps(len(log.path), _MOST_FRAMES).tolist()
    history = remember(mapper.model, _Walked(**known, log=log), 0, steps, name=exploration.name)
    chances = np.stack(recorder.chances)
    return Story(history, log.walls[0], task.start, chances, log.coverage[0])


def animate_walk(story: Story, path: Path, *, dpi: int = 60, rate: float = 10.0) -> Path:
    """Write the walk as the suffix says: .gif or .mp4."""
    return save_animation(_frames(story, dpi), path, rate)


def _frames(story: Story, dpi: int) -> Iterator[Frame]:
    picture = WalkFigure(story)
    picture.figure.set_dpi(dpi)
    for index in range(len(story.history.moments)):
        picture.show(index)
        yield picture.pixels()


class WalkFigure:
    """A picture of a moment of a walk that can be turned to another."""

    def __init__(self, story: Story) -> None:
        self.story = story
        grid = story.history.grid
        with style.look():
            self.figure = style.new_figure(11.0, 7.4, layout=False)
            panels = list(self.figure.subplots(2, 3).flat)
            self.figure.subplots_adjust(0.05, 0.1, 0.97, 0.87, 0.2, 0.28)
            self._title = self.figure.suptitle(" ", fontsize=14, fontweight="bold")
            titles = ("the world", "what has been seen", "the memory: hidden state")
            for axes, title in zip(panels, (*titles, "", "where was this seen?", ""), strict=True):
                axes.set_title(title)
            world, seen, memory, policy, answer, covered = panels
            self._world = _Walk(world, self._centred_walls())
            self._seen = _Walk(seen, np.full((grid, grid), UNKNOWN))
            low, high = story.history.limits("hidden")
            self._memory = _image(memory, story.history.moments[0].hidden, low, high)
            self._bars = policy.bar(_ACTIONS, [0.25] * 4, color=style.BLUE)
            policy.set(ylim=(0, 1), title="the policy's chances")
            self._answer = _image(answer, np.zeros((grid, grid)), 0, 1)
            self._wanted = LineCollection([], colors=style.VERMILLION, linewidths=1.4)
            answer.add_collection(self._wanted, autolim=False)
            self._query = _inset(answer)
            for axes in (world, seen, answer):
                self._look_at_maze(axes)
            (self._curve,) = covered.plot([], [], color=style.BLUE)
            steps = len(story.coverage) - 1
            covered.set(xlim=(0, steps), ylim=(0, 1), title="covered", xlabel="steps")
            covered.grid(True)
            self.figure.legend(handles=_handles(), loc="lower center", ncols=6)
            self.show(0)

    def show(self, index: int) -> None:
        """Turn to another moment."""
        story, moment = self.story, self.story.history.moments[index]
        step = moment.step
        self._world.show(moment)
        self._seen.show(moment)
        self._seen.image.set_data(moment.explored)
        self._memory.set_data(moment.hidden)
        for bar, chance in zip(
            self._bars, story.chances[min(step, len(story.chances) - 1)], strict=True
        ):
            bar.set_height(chance)
        self._answer.set_data(moment.answer)
        self._wanted.set_segments(_squares(moment.target))
        self._query.set_data(np.full((3, 3), UNKNOWN) if moment.query is None else moment.query)
        self._curve.set_data(np.arange(step + 1), story.coverage[: step + 1])
        self._title.set_text(
            f"{story.history.name}: step {step} of {len(story.coverage) - 1}, "
            f"{100 * story.coverage[step]:.0f} % covered"
        )

    def pixels(self) -> Frame:
        """The picture as (height, width, 3) bytes, both even as videos want them."""
        canvas: Any = self.figure.canvas
        with style.look():
            canvas.draw()
        buffer = np.asarray(canvas.buffer_rgba())
        height, width = buffer.shape[0] // 2 * 2, buffer.shape[1] // 2 * 2
        return np.ascontiguousarray(buffer[:height, :width, :3])

    def _look_at_maze(self, axes: Axes) -> None:
        """A small world is in the middle of its map: what lies around it is left out."""
        grid, size = self.story.history.grid, len(self.story.walls)
        first = max(0, grid // 2 - self.story.start)
        last = min(grid, grid // 2 - self.story.start + size)
        axes.set(xlim=(first - 0.5, last - 0.5), ylim=(last - 0.5, first - 0.5))

    def _centred_walls(self) -> npt.NDArray[np.int64]:
        """The maze on the grid of maps, which has the start in its middle."""
        grid, size = self.story.history.grid, len(self.story.walls)
        picture = np.full((grid, grid), WALL)
        rows = np.arange(size) - self.story.start + grid // 2
        inside = (rows >= 0) & (rows < grid)
        values = np.where(self.story.walls, WALL, 1)[inside][:, inside]
        picture[np.ix_(rows[inside], rows[inside])] = values
        return picture


class _Walk:
    """A map with the path on it."""

    def __init__(self, axes: Axes, values: npt.NDArray[Any]) -> None:
        self.image = axes.imshow(values, cmap=style.MAP, vmin=UNKNOWN, vmax=WALL)
        (self._path,) = axes.plot([], [], color=style.SKY, linewidth=1.2)
        (self._agent,) = axes.plot([], [], "o", color=style.VERMILLION, markersize=7)
        axes.set(xticks=[], yticks=[])

    def show(self, moment: Moment) -> None:
        rows, columns = moment.path.T
        self._path.set_data(columns, rows)
        self._agent.set_data(columns[-1:], rows[-1:])


def _image(axes: Axes, values: Any, low: float, high: float) -> Any:
    axes.set(xticks=[], yticks=[])
    return axes.imshow(values, cmap=style.VALUES, vmin=low, vmax=high)


def _inset(axes: Axes) -> Any:
    """The query, small, in a corner that the answer's map leaves free."""
    inset = axes.inset_axes((0.02, 0.76, 0.22, 0.22))
    inset.set(xticks=[], yticks=[])
    style.frame_all(inset)
    return inset.imshow(np.full((3, 3), UNKNOWN), cmap=style.MAP, vmin=UNKNOWN, vmax=WALL)


def _squares(target: npt.NDArray[Any]) -> list[npt.NDArray[np.float64]]:
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    return [corners + (column, row) for row, column in np.argwhere(target >= 0.5)]


def _handles() -> list[Any]:
    edge = "#444B55"
    return [
        Patch(facecolor=style.UNKNOWN_COLOR, edgecolor=edge, label="not seen yet"),
        Patch(facecolor=style.FREE_COLOR, edgecolor=edge, label="free"),
        Patch(facecolor=style.WALL_COLOR, edgecolor=edge, label="wall"),
        Line2D([], [], color=style.SKY, label="path"),
        Line2D([], [], color=style.VERMILLION, marker="o", linestyle="", label="agent"),
        Patch(facecolor="none", edgecolor=style.VERMILLION, label="where it was seen"),
    ]
