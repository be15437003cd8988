"""How far mapping memories carry: other motions, and longer walks than they were trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mgmem.errors import UsageError
from mgmem.experiments.records import results_folder, shipped_weights
from mgmem.experiments.registry import EXPERIMENTS
from mgmem.experiments.trained import load
from mgmem.files import read_bytes, write_atomically
from mgmem.nn import ReadWrite
from mgmem.tasks.base import Estimate
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, evaluate

WALKS = ("spiral", 500, 1000, 1500, 5000)
"""The spiral over the whole world, and random walks of so many steps."""


@dataclass(frozen=True)
class Carried:
    """A memory on walks of one kind, in worlds of the size it was trained on."""

    experiment: str
    weights: str
    """Their checksum."""
    walk: str
    steps: int
    own: bool
    """Whether these are the walks it was trained on."""
    episodes: int
    value: float
    low: float
    high: float

    @property
    def f(self) -> Estimate:
        """F with its 95% interval."""
        return Estimate(self.value, self.low, self.high)


def shipped_memories() -> list[str]:
    """Mapping experiments with a multigrid memory whose weights are shipped."""
    return [
        name
        for name, experiment in EXPERIMENTS.items()
        if name.startswith("mapping-")
        and experiment.system == "multigrid"
        and shipped_weights(name) is not None
    ]


def carry(name: str, episodes: int, told: Callable[[Carried], None]) -> list[Carried]:
    """Score a memory's shipped weights on every kind of walk; longer ones on fewer mazes."""
    found = []
    for walk in WALKS:
        motion = {"motion": "spiral" if walk == "spiral" else "random"}
        length = {} if walk == "spiral" else {"path_length": str(walk)}
        trained = load(name, task={**motion, "path_length": "none", **length})
        task, model = trained.task, trained.model
        if not isinstance(task, Mapping) or not isinstance(model, ReadWrite):
            raise UsageError(f"{name} is no multigrid memory of a map: name one")
        count = max(2, min(episodes, episodes * 500 // task.episode_length))
        stream = SeedStream(TEST_SEED, "test")
        f = evaluate(model, task, stream, count).result()["f"]
        own = trained.experiment.task() == task
        steps, kind = task.episode_length, motion["motion"]
        one = Carried(name, trained.sha256, kind, steps, own, count, f.value, f.low, f.high)
        told(one)
        found.append(one)
    return found


def write(carried: Sequence[Carried], folder: Path | None = None) -> Path:
    """Write ``folder/carry.json``."""
    path = (folder or results_folder()) / "carry.json"
    text = json.dumps([asdict(one) for one in carried], indent=1) + "\n"
    write_atomically(path, text.encode())
    return path


def read(folder: Path | None = None) -> list[Carried]:
    """What was measured; an error that says how to, where nothing was."""
    path = (folder or results_folder()) / "carry.json"
    try:
        return [Carried(**one) for one in json.loads(read_bytes(path))]
    except FileNotFoundError:
        raise UsageError(f"{path} is not there: `mgmem report carry --measure` makes it") from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged ({error}): `mgmem report carry --measure`") from None
