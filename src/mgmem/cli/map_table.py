"""The table of ``mgmem evaluate --map``: is the map in the memory?"""

from __future__ import annotations

from torch import nn

from mgmem.cli.tables import new_table, print_table
from mgmem.errors import UsageError
from mgmem.report.map_probe import measure_map
from mgmem.tasks.base import Task
from mgmem.tasks.mapping import Mapping

_MOST_EPISODES = 50


def print_map(model: nn.Module, task: Task, episodes: int = _MOST_EPISODES) -> None:
    """Measure every view of a memory on fresh episodes, at most 50, and print them."""
    if not isinstance(task, Mapping):
        raise UsageError(f"--map: {task.name} has no map; mapping has")
    count = min(episodes, _MOST_EPISODES)
    measure = measure_map(model, task, count, _MOST_EPISODES)
    columns = ("AUC", "AUC, places alike", "cells right")
    table = new_table("wall or free, told by", *columns)
    for row in measure.rows:
        table.add_row(row.view, f"{row.auc:.4f}", f"{row.auc_alike:.4f}", f"{row.right:.2%}")
    print(f"{measure.cells:,} cells seen in {measure.episodes} episodes, five moments of each:")
    print_table(table)
