"""An explorer for the page: its frozen memory, and the policy that decides by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mgmem.errors import UsageError
from mgmem.experiments import explore
from mgmem.experiments.explore import EXPLORATIONS, Exploration, Mapper, find_exploration
from mgmem.experiments.explore_trained import load_agent
from mgmem.experiments.trained import locate
from mgmem.play.export import PROBE_EPISODES, PagePolicy, conv_tensors, export_memory, network
from mgmem.play.site import digest
from mgmem.rl.agent import Agent
from mgmem.rl.policy import ReaderPolicy
from mgmem.rl.sight import MemorySight
from mgmem.training.weights import load_weights


def read_explorer(what: str, memory: str | None = None) -> dict[str, bytes]:
    """The two files of an explorer by name: a shipped one's name, a run folder or a weights file.

    memory: the frozen memory that it was trained with; None: the exploration's own.
    """
    exploration, path = _find(what)
    if memory is not None:
        exploration = replace(exploration, memory=memory)
    mapper = explore.load_mapper(exploration)
    trained = load_agent(exploration, mapper, path)
    if trained.system != "memory":
        raise UsageError(
            f"{what} holds a {trained.system} agent: the page runs those that read a memory "
            "(`mgmem train --system memory`)"
        )
    about = {
        "name": exploration.name,
        "title": exploration.title,
        "source": digest(trained.file),
    }
    return export_explorer(mapper, trained.agent, exploration.steps, about)


def _find(what: str) -> tuple[Exploration, Path | None]:
    """The exploration, and where its agent lies; None: it is shipped."""
    if what in EXPLORATIONS or not Path(what).exists():
        return find_exploration(what), None
    experiment: str = load_weights(locate(what)).about["experiment"]
    return find_exploration(experiment), Path(what)


def export_explorer(
    mapper: Mapper,
    agent: Agent,
    steps: int,
    about: dict[str, Any],
    *,
    probe_episodes: int = PROBE_EPISODES,
) -> dict[str, bytes]:
    """The two files of an agent on a memory; steps: of the walks that it learned in."""
    policy, sight = agent.policy, agent.sight
    assert isinstance(policy, ReaderPolicy)
    assert isinstance(sight, MemorySight)
    header = {
        **network(policy.reader),
        "rectified": True,
        "sees": 0,
        "window": sight.window,
        "steps": steps,
        "parameters": sum(p.numel() for p in policy.parameters()),
    }
    return export_memory(
        mapper.model,
        mapper.task,
        about,
        learned=mapper.learned,
        policy=PagePolicy(header, _tensors(policy)),
        probe_episodes=probe_episodes,
    )


def _tensors(policy: ReaderPolicy) -> dict[str, Tensor]:
    """All that decides; the value of a moment is of use only in learning."""
    linear = {"policy.join": policy.join, "policy.action": policy.heads.action}
    ends = {f"{name}.weight": layer.weight for name, layer in linear.items()}
    ends |= {f"{name}.bias": layer.bias for name, layer in linear.items()}
    return {**conv_tensors("policy", policy.reader), **ends}
