"""Image files as arrays, and records made up: what the tests of reports share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from mgmem.experiments.records import Record


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """(height, width, 3); checks the whole file."""
    with Image.open(path) as image:
        image.load()
        return np.asarray(image.convert("RGB"))


def make_record(
    experiment: str, values: list[float], *, seed: int = 0, metric: str = "f", hours: float = 2.0
) -> Record:
    """A record whose curve has these values, a thousand steps apart."""
    count = len(values)
    curve = [
        {"update": i, "steps": 1000 * i, "seconds": 3600 * hours * i / count, metric: value}
        for i, value in enumerate(values, 1)
    ]
    last = values[-1]
    return Record(
        schema=2,
        experiment=experiment,
        recipe="fast",
        seed=seed,
        commands=[f"mgmem train {experiment}"],
        settings={},
        weights="0" * 64,
        commit="0123456789ab",
        date="2020-07-12",
        machine="2 cores",
        parameters=123_273,
        cells=7_992,
        updates=count,
        steps=1000 * count,
        seconds=3600 * hours,
        curve=curve,
        episodes=5000,
        metric=metric,
        higher_is_better=metric == "f",
        metrics={metric: {"value": last, "low": last - 0.001, "high": last + 0.001}},
    )
