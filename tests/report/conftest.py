"""Small untrained models and an episode that one of them went through."""

from __future__ import annotations

import pytest
from torch import nn

from mgmem.experiments import find
from mgmem.report.map_view import MapView, choose_view
from mgmem.report.memory import History, remember
from mgmem.tasks.mapping import Mapping


@pytest.fixture(scope="session")
def mapping9() -> tuple[Mapping, nn.Module]:
    task, model = find("mapping-9").build()
    assert isinstance(task, Mapping)
    return task, model


@pytest.fixture(scope="session")
def history(mapping9: tuple[Mapping, nn.Module]) -> History:
    task, model = mapping9
    return remember(model, task, 3, [5, 30, 48], name="mapping-9")


@pytest.fixture(scope="session")
def view(mapping9: tuple[Mapping, nn.Module]) -> MapView:
    task, model = mapping9
    made = choose_view(model, task, episodes=6)
    assert made is not None
    return made


@pytest.fixture(scope="session")
def read_history(mapping9: tuple[Mapping, nn.Module], view: MapView) -> History:
    """The same episode, with maps read out of the memory."""
    task, model = mapping9
    return remember(model, task, 3, [5, 30, 48], name="mapping-9", view=view)
