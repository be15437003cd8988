"""``mgmem train explore-15``, ``mgmem explore evaluate | show | speed``: agents that explore."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from rich.progress import track

from mgmem.cli.train import without_whereabouts
from mgmem.errors import UsageError
from mgmem.experiments import explore
from mgmem.experiments import explore_records as walked
from mgmem.experiments import records as rec
from mgmem.experiments.explore import Exploration, System
from mgmem.experiments.explore_trained import load_agent, publish
from mgmem.rl.a3c import A3C
from mgmem.rl.coverage import Log, steps_per_second
from mgmem.rl.learning import Limits, learn
from mgmem.rl.ppo import PPO
from mgmem.rl.vector import MazeVectorEnv
from mgmem.rl.walkers import RandomWalker, Walker
from mgmem.training.device import set_threads
from mgmem.training.folder import writing
from mgmem.training.progress import Reporter


@dataclass(frozen=True)
class Train:
    """Train an agent to explore. A run folder that exists is resumed; Ctrl-C saves and stops."""

    name: tyro.conf.Positional[str]
    """explore-15 or explore-25."""
    memory: str
    """The frozen memory: a mapping experiment (shipped weights), a run folder or a file."""
    ppo: PPO
    a3c: A3C
    system: System = "memory"
    """What learns: on the memory, on the true map, from the view alone, or an LSTM."""
    algorithm: Literal["ppo", "a3c"] = "ppo"
    """How it learns."""
    seed: int = 0
    """Seed of the initial weights, the mazes and the actions."""
    folder: Path | None = None
    """Run folder for checkpoints and logs; default runs/NAME-SYSTEM-ALGORITHM-SEED."""
    max_updates: int | None = None
    """Stop after so many updates in all; the schedule stays as it is."""
    max_minutes: float | None = None
    """Stop after so many minutes of this call."""
    evaluate_every: int = 25
    """Updates between evaluations on validation mazes."""
    evaluate_walks: int = 64
    """Walks of each."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    threads: int | None = None
    """Threads of computation; default: all cores."""
    quiet: bool = False
    """Print nothing but errors."""


@dataclass(frozen=True)
class Evaluate:
    """Walk through fresh test mazes: trained agents beside walkers that follow a rule."""

    name: tyro.conf.Positional[str]
    """explore-15 or explore-25."""
    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Run folders, or weights files, of agents to evaluate; default: the shipped agent."""
    memory: str | None = None
    """The frozen memory that the runs were trained with; default: the exploration's."""
    rules: bool = True
    """Also those that follow a rule: random, random without bumping, nearest frontier."""
    walks: int = 1000
    """Fresh test mazes."""
    record: bool = False
    """Write results/exploration/NAME/WALKER.json."""
    publish: bool = False
    """Make the first run, an agent on a memory, the shipped one; needs --record."""
    results: Path | None = None
    """Folder of records; default: results/ of this repository or package."""
    quiet: bool = False
    """Show no progress."""


@dataclass(frozen=True)
class Show:
    """Draw a walk as an animation, and the curves of a run."""

    name: tyro.conf.Positional[str]
    """explore-15 or explore-25."""
    run: tyro.conf.Positional[Path | None] = None
    """Run folder of an agent on a memory; default: the shipped agent."""
    memory: str | None = None
    """The frozen memory that the run was trained with; default: the exploration's."""
    episode: int = 0
    """Number of the test maze, from 0."""
    out: Path = Path("figures")
    """Folder for the files."""
    format: Literal["gif", "mp4"] = "gif"
    """Kind of animation; mp4 needs ffmpeg."""
    records: bool = True
    """Also draw coverage against steps of all recorded walkers, if there are any."""


@dataclass(frozen=True)
class Speed:
    """Measure steps a second: the vector environment alone, and with a fresh agent in it."""

    name: tyro.conf.Positional[str]
    """explore-15 or explore-25."""
    mazes: int = 256
    """Walks side by side in the environment alone; an agent has as many as it trains with."""
    seconds: float = 3.0
    """To measure each."""
    memory: str | None = None
    """The frozen memory; default: the exploration's."""
    threads: int | None = None
    """Threads of computation; default: all cores."""


def run(arguments: Sequence[str]) -> None:
    """The first word says what to do."""
    commands = {"evaluate": evaluate, "show": show, "speed": speed}
    if not arguments or arguments[0] not in commands:
        raise UsageError(
            f"mgmem explore {' '.join(arguments[:1])}: say one of {', '.join(commands)}"
        )
    commands[arguments[0]](arguments[1:])


def train(arguments: Sequence[str]) -> None:
    """Parse and train."""
    options = _parse_train(arguments)
    exploration = replace(
        explore.find_exploration(options.name),
        memory=options.memory,
        ppo=options.ppo,
        a3c=options.a3c,
    )
    set_threads(options.threads, 1)
    mapper = explore.load_mapper(exploration)
    system, algorithm, seed = options.system, options.algorithm, options.seed
    learner = explore.make_learner(exploration, system, mapper, algorithm, seed)
    about = explore.about_run(exploration, system, mapper, algorithm, seed)
    about["command"] = shlex.join(["mgmem", "train", *without_whereabouts(arguments)])
    folder = options.folder or Path("runs") / f"{options.name}-{system}-{algorithm}-{seed}"

    def validate() -> dict[str, float]:
        agent = explore.make_agent(exploration, system, mapper, learner.policy, seed=1)
        log = explore.walk(exploration, agent, options.evaluate_walks, "valid")
        scores = explore.scores(log, mapper, localization=system == "memory")
        return {name: estimate.value for name, estimate in scores.items()}

    updates = (options.ppo if algorithm == "ppo" else options.a3c).updates
    limits = Limits(
        updates,
        options.max_updates,
        options.max_minutes,
        options.evaluate_every,
        options.checkpoint_seconds,
    )
    with writing(folder), Reporter(folder, options.name, updates, options.quiet) as reporter:
        progress = learn(learner, validate, folder, about, limits, reporter)
        best = "" if progress.best is None else f", best area {progress.best:.4f}"
        reporter.say(
            f"stopped at update {learner.done:,} after {progress.seconds / 60:.1f} minutes{best}. "
            f"Run folder: {folder}"
        )


def evaluate(arguments: Sequence[str]) -> None:
    """Parse, walk, compare."""
    options = tyro.cli(Evaluate, prog="mgmem explore evaluate", args=list(arguments))
    if options.walks < 2:
        raise UsageError(f"--walks {options.walks}: an interval needs at least 2")
    records = []
    exploration = _with_memory(explore.find_exploration(options.name), options.memory)
    mapper = explore.load_mapper(exploration)
    agents = [load_agent(exploration, mapper, path) for path in _wanted(options)]
    for trained in agents:
        system = trained.system
        log = _walk(exploration, trained.agent, system, options)
        scores = explore.scores(log, mapper, localization=system == "memory")
        title = explore.SYSTEMS[system]
        more = trained.history
        records.append(walked.new_record(exploration.name, system, title, log, scores, **more))
        if "f" in scores:
            known = ", ".join(f"{k} {scores[k]}" for k in ("f", "precision", "recall"))
            print(f"localization on its own walks: {known} (paper: F {explore.PAPER_F})")
    for rule, title in explore.RULES.items() if options.rules else ():
        log = _walk(exploration, explore.make_rule(rule, mapper), rule, options)
        records.append(walked.new_record(exploration.name, rule, title, log, log.summary()))
    records.sort(key=lambda record: -record.metrics["area"]["value"])
    print(walked.walk_table(records))
    if options.record:
        for record in records:
            print(f"recorded in {record.write(options.results or rec.results_folder())}")
    if options.publish:
        print(f"published as {publish(exploration, agents[0], options.walks).name}")


def _wanted(options: Evaluate) -> list[Path | None]:
    """The agents to evaluate; None is the shipped one, if there is any."""
    if options.publish and not (options.runs and options.record):
        raise UsageError("--publish needs a run folder, and --record")
    if options.runs or rec.shipped_weights(options.name) is None or options.memory is not None:
        return list(options.runs)
    return [None]


def show(arguments: Sequence[str]) -> None:
    """Parse and draw."""
    options = tyro.cli(Show, prog="mgmem explore show", args=list(arguments))
    from mgmem.report.explore_curves import draw_company, draw_learning
    from mgmem.report.explore_walk import animate_walk, watch_walk
    from mgmem.report.style import save_figure

    exploration = _with_memory(explore.find_exploration(options.name), options.memory)
    mapper = explore.load_mapper(exploration)
    trained = load_agent(exploration, mapper, options.run)
    if trained.system != "memory":
        raise UsageError(f"{options.run} holds a {trained.system} agent: a memory can be shown")
    stem = options.out / f"{options.name}-walk{options.episode}"
    story = watch_walk(exploration, mapper, trained.agent, options.episode)
    written = [animate_walk(story, stem.with_suffix(f".{options.format}"))]
    curve = trained.history["curve"]
    if curve:
        figure = draw_learning(options.name, curve, _memory_curve(exploration.memory))
        written.append(save_figure(figure, options.out / f"{options.name}-learning.png"))
    records = walked.load_walk_records(options.name) if options.records else []
    if records:
        figure = draw_company(options.name, records)
        written.append(save_figure(figure, options.out / f"{options.name}-coverage.png"))
    for path in written:
        print(f"written to {path}")


def speed(arguments: Sequence[str]) -> None:
    """Parse and measure."""
    options = tyro.cli(Speed, prog="mgmem explore speed", args=list(arguments))
    set_threads(options.threads, 1)
    exploration = _with_memory(explore.find_exploration(options.name), options.memory)
    mazes = MazeVectorEnv(options.mazes, exploration.world, exploration.steps)
    alone = steps_per_second(mazes, RandomWalker(), options.seconds)
    print(f"environment alone, {options.mazes} mazes: {alone:,.0f} steps/s")
    mapper = explore.load_mapper(exploration)
    mazes = MazeVectorEnv(exploration.ppo.mazes, exploration.world, exploration.steps)
    for system in explore.SYSTEMS:
        policy = explore.make_policy(exploration, system, mapper, 0)
        agent = explore.make_agent(exploration, system, mapper, policy, 0)
        rate = steps_per_second(mazes, agent, options.seconds)
        print(f"with {explore.SYSTEMS[system]}, {mazes.num_envs} mazes: {rate:,.0f} steps/s")


def _walk(exploration: Exploration, walker: Walker, name: str, options: Evaluate) -> Log:
    quiet = options.quiet or not sys.stderr.isatty()
    bar = iter(track(range(options.walks), name, transient=True, disable=quiet))
    done = 0

    def advance(now: int) -> None:
        nonlocal done
        for _ in range(now - done):
            next(bar, None)
        done = now

    return explore.walk(exploration, walker, options.walks, progress=advance)


def _memory_curve(memory: str) -> list[dict[str, float]]:
    """How the memory itself learned, as far as that is recorded."""
    curves = [record.curve for record in rec.load_records() if record.experiment == memory]
    return next((curve for curve in curves if curve and "loss" in curve[0]), [])


def _with_memory(exploration: Exploration, memory: str | None) -> Exploration:
    return exploration if memory is None else replace(exploration, memory=memory)


def _parse_train(arguments: Sequence[str]) -> Train:
    """The exploration decides the defaults, so its name is looked at first."""
    name = next((word for word in arguments if word in explore.EXPLORATIONS), None)
    if name is None:
        named = [word for word in arguments if not word.startswith("-")]
        if named:
            explore.find_exploration(named[0])
        name = next(iter(explore.EXPLORATIONS))
    known = explore.EXPLORATIONS[name]
    default = Train(name=name, memory=known.memory, ppo=known.ppo, a3c=known.a3c)
    return tyro.cli(Train, prog="mgmem train", args=list(arguments), default=default)
