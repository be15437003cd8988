"""A small world with a shipped memory, which trains in moments."""

from __future__ import annotations

import pytest

from mgmem.experiments.explore import Exploration, Mapper, load_mapper
from mgmem.rl.a3c import A3C
from mgmem.rl.ppo import PPO


@pytest.fixture(scope="session")
def small() -> Exploration:
    return Exploration(
        "explore-small",
        "9x9 worlds",
        world=9,
        steps=20,
        memory="mapping-9",
        window=6,
        reader="0-1:4 0:4",
        width=16,
        ppo=PPO(updates=6, mazes=4, rollout=8, epochs=2, minibatches=2),
        a3c=A3C(updates=3, workers=1, mazes=4, rollout=5, segments=2),
    )


@pytest.fixture(scope="session")
def mapper(small: Exploration) -> Mapper:
    return load_mapper(small)
