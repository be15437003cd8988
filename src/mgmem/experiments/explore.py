"""Exploration (the paper's section 4.2): agents on a frozen memory, and fair company."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from mgmem.errors import UsageError
from mgmem.experiments.experiment import count_parameters
from mgmem.experiments.trained import load
from mgmem.nn import ReadWrite
from mgmem.rl.a3c import A3C, A3CLearner
from mgmem.rl.agent import Agent
from mgmem.rl.coverage import Log, take_walks
from mgmem.rl.learning import Learner
from mgmem.rl.localization import localize
from mgmem.rl.policy import LSTMPolicy, Policy, ReactivePolicy, ReaderPolicy
from mgmem.rl.ppo import PPO, PPOLearner
from mgmem.rl.sight import MapSight, MemorySight, NoSight, Sight
from mgmem.rl.vector import MazeVectorEnv
from mgmem.rl.walkers import CarefulWalker, CuriousWalker, FrontierWalker, RandomWalker, Walker
from mgmem.tasks.base import Estimate
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import Split
from mgmem.training.evaluation import TEST_SEED

System = Literal["memory", "map", "reactive", "lstm"]
SYSTEMS: dict[System, str] = {
    "memory": "policy reader on the frozen memory",
    "map": "the same reader on the true map explored so far",
    "reactive": "policy that sees only the view",
    "lstm": "LSTM policy with as many parameters",
}
RULES = {
    "random": "uniformly random",
    "careful": "random without bumping",
    "curious": "to where it has been least often",
    "frontier": "search for the nearest frontier",
}
PAPER_F = 0.9286
"""Localization on the policy's own walks of 1,000 steps: the last row of the paper's table 1."""


@dataclass(frozen=True)
class Exploration:
    """A named world to explore, a memory to do it with, and how the policy learns."""

    name: str
    title: str
    world: int
    steps: int
    memory: str
    """An experiment of mapping (its shipped weights), a run folder or a weights file."""
    window: int = 12
    """Side of what the policy reads around the agent."""
    reader: str = "1-2:16 0-1:24 0:32"
    """Mesh of the policy reader."""
    width: int = 128
    """Features before its heads."""
    ppo: PPO = field(default_factory=PPO)
    a3c: A3C = field(default_factory=A3C)


EXPLORATIONS = {
    exploration.name: exploration
    for exploration in (
        Exploration("explore-15", "15x15 worlds, small memory", 15, 300, "mapping-15-random"),
        Exploration(
            "explore-25", "25x25 worlds, small memory", 25, 1000, "mapping-25-random-small"
        ),
    )
}


def find_exploration(name: str) -> Exploration:
    """The exploration of that name; an unknown name is an error that suggests the nearest."""
    if name in EXPLORATIONS:
        return EXPLORATIONS[name]
    near = difflib.get_close_matches(name, EXPLORATIONS, 1, 0.0)[0]
    raise UsageError(f"no exploration {name!r}; did you mean {near!r}?")


@dataclass(frozen=True)
class Mapper:
    """A trained mapping model, ready to be walked with; ``digest`` identifies its weights."""

    task: Mapping
    """Walks through the exploration's world."""
    learned: Mapping
    """What the model was trained on."""
    model: ReadWrite
    digest: str


def load_mapper(exploration: Exploration) -> Mapper:
    """The frozen mapping and localization network, in the exploration's world."""
    trained = load(exploration.memory)
    task, model = trained.task, trained.model
    if not isinstance(task, Mapping) or not isinstance(model, ReadWrite):
        raise UsageError(f"{exploration.memory} has no multigrid memory of a map: name another")
    model.requires_grad_(False)
    return Mapper(_in_world(task, exploration), task, model, trained.sha256)


def _in_world(task: Mapping, exploration: Exploration) -> Mapping:
    """The same task about walks through the exploration's world."""
    world, length = exploration.world, exploration.steps + 1
    plain = replace(task, stretch=None, rare=0.0, motion="random", path_length=length)
    return replace(plain, world=world)


def make_policy(exploration: Exploration, system: System, mapper: Mapper, seed: int) -> Policy:
    """A fresh policy; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        view = mapper.task.fov
        if system == "reactive":
            return ReactivePolicy(exploration.width, view)
        if system == "lstm":
            reading = make_policy(exploration, "memory", mapper, seed)
            total = count_parameters(reading) + _all_parameters(mapper.model.memory)
            return LSTMPolicy(LSTMPolicy.hidden_for(total, view), view)
        channels = make_sight(exploration, system, mapper).channels
        return ReaderPolicy(
            channels, exploration.window, exploration.reader, exploration.width, view
        )


def _all_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def make_sight(exploration: Exploration, system: System, mapper: Mapper) -> Sight:
    """What the system's policy looks at."""
    if system == "memory":
        return MemorySight(mapper.model.memory, mapper.task.grid, exploration.window)
    if system == "map":
        return MapSight(mapper.task.grid, exploration.window)
    return NoSight()


def make_agent(
    exploration: Exploration, system: System, mapper: Mapper, policy: Policy, seed: int
) -> Agent:
    """A policy with what it looks at."""
    return Agent(mapper.task, make_sight(exploration, system, mapper), policy, seed)


def make_learner(
    exploration: Exploration,
    system: System,
    mapper: Mapper,
    algorithm: Literal["ppo", "a3c"],
    seed: int,
) -> Learner:
    """A learner with a fresh policy."""
    policy = make_policy(exploration, system, mapper, seed)
    if algorithm == "a3c":
        return A3CLearner(partial(_join_in, exploration, system), policy, exploration.a3c, seed)
    settings = exploration.ppo
    agent = make_agent(exploration, system, mapper, policy, seed)
    mazes = MazeVectorEnv(settings.mazes, exploration.world, exploration.steps, mapper.task.fov)
    return PPOLearner(agent, mazes, settings, seed)


def _join_in(
    exploration: Exploration, system: System, seed: int, mazes: int
) -> tuple[Agent, MazeVectorEnv]:
    """What a worker process of A3C works with; its weights come from the shared ones."""
    mapper = load_mapper(exploration)
    policy = make_policy(exploration, system, mapper, 0)
    agent = make_agent(exploration, system, mapper, policy, seed)
    return agent, MazeVectorEnv(mazes, exploration.world, exploration.steps, mapper.task.fov)


def make_rule(rule: str, mapper: Mapper) -> Walker:
    """A walker that follows a rule."""
    if rule == "frontier":
        return FrontierWalker(mapper.task.grid)
    if rule == "curious":
        return CuriousWalker(mapper.task.grid)
    return RandomWalker() if rule == "random" else CarefulWalker()


def walk(
    exploration: Exploration,
    walker: Walker,
    count: int,
    split: Split = "test",
    progress: Callable[[int], None] = lambda done: None,
) -> Log:
    """Whole walks through fresh mazes: the same ones for every walker."""
    world, steps = exploration.world, exploration.steps
    return take_walks(
        walker,
        world=world,
        steps=steps,
        count=count,
        seed=TEST_SEED,
        split=split,
        progress=progress,
    )


def scores(log: Log, mapper: Mapper, *, localization: bool) -> dict[str, Estimate]:
    """What the walks came to; with ``localization``, what the memory knew of them as well."""
    found = log.summary()
    if localization:
        score, loss = localize(mapper.model, mapper.task, log)
        found |= score.result() | {"localization_loss": Estimate(loss, loss, loss)}
    return found


def about_run(
    exploration: Exploration, system: System, mapper: Mapper, algorithm: str, seed: int
) -> dict[str, Any]:
    """What identifies a run; travels with its checkpoints and weights.

    Only what looks at a memory depends on its weights; the others go with any.
    """
    memory = {"memory": Path(exploration.memory).name, "memory_digest": mapper.digest}
    return {
        "experiment": exploration.name,
        "recipe": "fast",
        "system": system,
        "algorithm": algorithm,
        "seed": seed,
        **(memory if system == "memory" else {}),
        "window": exploration.window,
        "reader": exploration.reader,
        "width": exploration.width,
        "settings": _settings(exploration, algorithm),
    }


def _settings(exploration: Exploration, algorithm: str) -> dict[str, Any]:
    return dict(vars(exploration.ppo if algorithm == "ppo" else exploration.a3c))
