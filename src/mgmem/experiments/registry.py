"""Every experiment by name."""

from __future__ import annotations

import difflib

from mgmem.errors import UsageError
from mgmem.experiments import table1, table2, table3
from mgmem.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for rows in (
        table1.MULTIGRID,
        table2.MULTIGRID,
        table3.MULTIGRID,
        table1.BASELINES,
        table2.BASELINES,
        table3.BASELINES,
    )
    for experiment in rows
}


def find(name: str) -> Experiment:
    """The experiment of that name; an unknown name is an error that suggests the nearest."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, 1, 0.0)[0]
    raise UsageError(
        f"no experiment {name[:100]!r}; did you mean {near!r}? `mgmem list` shows them all"
    )
