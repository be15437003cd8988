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


# Files that take long, longest first, and before them groups over several files: begun last, all
# would wait for them.
_LONG = (
    "play/test_numbers.py", "cli/test_show_cli.py", "report/test_memory_pictures.py",
    "rl/test_explore_cli.py", "rl/test_learners.py", "training/test_resume.py",
    "play/test_explorer.py", "play/test_dnc_numbers.py", "training/test_distributed.py",
    "ops/test_native.py", "cli/test_commands.py", "hardening/test_disks.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Groups are known where tests run without xdist, too."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker runs in order")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file is one worker's, so that what its tests share is made once; long ones come first."""
    tests = Path(__file__).parent
    place = {tests / name: index for index, name in enumerate(_LONG)}
    assert all(path.is_file() for path in place)

    def turn(item: pytest.Item) -> int:
        if item.get_closest_marker("xdist_group") is not None:
            return -1
        return place.get(item.path, len(place))

    items.sort(key=turn)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(tests).as_posix()))


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test starts from the same random numbers, whichever tests ran before it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
