"""A DNC for the page, beside the memory it plays: beside.json says what it is, beside.bin has its
weights in half precision. They are files of their own, because they are larger than all else: the
page loads them when somebody asks for them, and memory.json says that they are there.
"""

from __future__ import annotations

import json
from typing import Any

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel
from mgmem.errors import UsageError
from mgmem.experiments.records import Record, load_records
from mgmem.experiments.trained import Trained, load, locate
from mgmem.play.export import FORMAT, Numbers, task_header
from mgmem.play.site import digest
from mgmem.tasks.mapping import Mapping
from mgmem.training.weights import load_weights

_SAME = {
    "world": "a world of {}",
    "fov": "a view of {}",
    "query": "questions of {}",
    "grid": "answers on a grid of {}",
    "start": "a start at {}",
}
"""What two networks have to share so that one walk and one question are for both."""


def add_beside(site: dict[str, bytes], what: str, played: str | None) -> dict[str, bytes]:
    """The site with a DNC: an experiment's name, a run folder or a file.

    played: the memory of the site in the same words, for its figure; None: it has none.
    """
    header = json.loads(site["memory.json"])
    trained = load(what)
    files = export_beside(trained, header, _recorded(played))
    header["beside"] = {
        "name": trained.experiment.name,
        "bytes": sum(map(len, files.values())),
    }
    text = json.dumps(header, indent=1, sort_keys=True) + "\n"
    return {**site, **files, "memory.json": text.encode()}


def export_beside(
    trained: Trained, page: dict[str, Any], memory: Record | None = None
) -> dict[str, bytes]:
    """The two files of a DNC by name; page: the header of the memory that it is to stand beside.

    memory: the record of that memory, if it has one.
    """
    model, dnc, task = _playable(trained)
    _check_same(trained.experiment.name, task_header(task, task), page)
    head = model.heads[0]
    numbers = Numbers()
    numbers.add("from_input.weight", dnc.from_input.weight)
    numbers.add("from_input.bias", dnc.from_input.bias)
    numbers.add("from_past.weight", dnc.from_past.weight)
    numbers.add("to_interface.weight", dnc.to_interface.weight)
    numbers.add("to_interface.bias", dnc.to_interface.bias)
    for name, tensor in head.named_parameters():
        numbers.add(f"head.{name}", tensor)
    row = trained.experiment.row
    header = {
        "format": FORMAT,
        "about": {
            "name": trained.experiment.name,
            "title": trained.experiment.title,
            "source": digest(trained.path),
            "parameters": sum(p.numel() for p in model.parameters()),
            "cells": model.cells,
            "trained": _figures(trained.record),
            "paper": row.figures.get("f") if row else None,
        },
        "memory": {"name": page["about"]["name"], "trained": _figures(memory)},
        "task": task_header(task, task),
        "dnc": {
            "hidden": dnc.hidden,
            "slots": dnc.slots,
            "width": dnc.width,
            "heads": dnc.read_heads,
            "clip": dnc.clip,
            "epsilon": dnc.epsilon,
        },
        "tensors": numbers.index,
    }
    text = json.dumps(header, indent=1, sort_keys=True) + "\n"
    return {"beside.json": text.encode(), "beside.bin": b"".join(numbers.parts)}


def _playable(trained: Trained) -> tuple[FlatModel, DNC, Mapping]:
    """The parts that the page can run; anything else is an error that says why."""
    name, model, task = trained.experiment.name, trained.model, trained.task
    if not isinstance(model, FlatModel) or not isinstance(model.core, DNC):
        raise UsageError(
            f"--beside {name}: that is no DNC: give one that learned mapping, as mapping-15-dnc"
        )
    if not isinstance(task, Mapping):
        raise UsageError(
            f"--beside {name}: the page walks through mazes, this DNC was trained to {task.name}: "
            "give one that learned mapping, as mapping-15-dnc"
        )
    if len(task.queries) > 1:
        raise UsageError(
            f"--beside {name}: it is asked for patches of {task.queries}: the page asks for one"
        )
    return model, model.core, task


def _check_same(name: str, own: dict[str, Any], page: dict[str, Any]) -> None:
    """Raise UsageError unless both learned the same worlds and questions."""
    played = page["about"]["name"]
    wrong = [key for key in _SAME if own[key] != page["task"][key]]
    if wrong:
        has = ", ".join(_SAME[key].format(own[key]) for key in wrong)
        wants = ", ".join(_SAME[key].format(page["task"][key]) for key in wrong)
        raise UsageError(
            f"--beside {name} has {has}, but {played} has {wants}: they can not be asked on the "
            "same walk; give a DNC that learned the same worlds"
        )


def _recorded(what: str | None) -> Record | None:
    """The record of weights, if they have one."""
    if what is None:
        return None
    checksum = load_weights(locate(what)).sha256
    return next((record for record in load_records() if record.weights == checksum), None)


def _figures(record: Record | None) -> dict[str, float] | None:
    """How good it is on fresh mazes, and what its training took."""
    if record is None:
        return None
    metrics = {name: record.estimate(name).value for name in ("precision", "recall", "f")}
    return {
        **metrics,
        "updates": record.updates,
        "steps": record.steps,
        "seconds": record.seconds,
    }
