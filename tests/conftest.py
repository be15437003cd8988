"""What all tests share: one thread per worker, reproducible examples, where the data may be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("MGMEM_DATA", str(_DATA))

# The networks here are tiny: a second thread costs more than it brings, above all under xdist.
torch.set_num_threads(1)

hypothesis.settings.register_profile(
    "mgmem", deadline=None, derandomize=True, database=None, max_examples=25
)
hypothesis.settings.load_profile("mgmem")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What one worker has to do by itself comes first: begun last, all would wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test starts from the same random numbers, whichever tests ran before it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
