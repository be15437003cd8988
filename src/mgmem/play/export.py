"""A trained mapping memory in the page's format: memory.json says what it is, memory.bin has
every number, weights in half precision. The page's js/model.js reads both. A policy that decides
by the memory may go with it (explorer.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mgmem.errors import UsageError
from mgmem.nn import MultigridMemory, ReadWrite
from mgmem.nn.conv import MultigridCNN, MultigridConv
from mgmem.nn.lstm import MultigridConvLSTM
from mgmem.nn.reader import MultigridReader
from mgmem.report.map_probe import LinearProbe, best_channels, fit_probe
from mgmem.report.moments import collect
from mgmem.spec import LayerSpec, MeshSpec
from mgmem.tasks.base import Task
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps

FORMAT = "mgmem-page-1"
PROBE_EPISODES = 60
_PROBE_MOMENTS = 6


@dataclass
class Numbers:
    """Tensors one after another as little-endian bytes, and where each lies."""

    parts: list[bytes] = field(default_factory=list)
    index: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, tensor: Tensor, kind: Literal["f2", "f4"] = "f2") -> None:
        """Append a tensor; "f2" in half precision, "f4" in full."""
        values = tensor.detach().cpu().float().numpy()
        with np.errstate(over="ignore"):
            stored = values.astype(f"<{kind}")
        if not np.isfinite(stored).all():
            raise UsageError(f"{name} holds numbers that half precision can not: train it anew")
        content = stored.tobytes()
        place = {"shape": list(values.shape), "kind": kind, "offset": self.size}
        self.index.append({"name": name, **place})
        self.parts.append(content)
        self.size += len(content)


@dataclass(frozen=True)
class PagePolicy:
    """A policy as the page has it: what it is, and its numbers by name."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]


def export_memory(
    model: nn.Module,
    task: Task,
    about: dict[str, Any],
    *,
    learned: Mapping | None = None,
    policy: PagePolicy | None = None,
    probe_episodes: int = PROBE_EPISODES,
) -> dict[str, bytes]:
    """The two files of a memory by name; ``about`` (name, title, source) goes in as it is.

    task: the walks that the page shows. learned: those that the memory learned from; None: the
    same. policy: what decides where to go, if anything does.
    """
    memory, reader, read_write = _playable(model, task)
    assert isinstance(task, Mapping)
    probe, channels = _probe(model, task, probe_episodes)
    numbers = Numbers()
    for layer, module in enumerate(memory.layers):
        assert isinstance(module, MultigridConvLSTM)
        for index, level in enumerate(module.layer.levels):
            # One convolution over input and state together gives the same gates as two.
            both = torch.cat([module.input_weights[index], module.recurrent_weights[index]], 1)
            numbers.add(f"memory.{layer}.{level}.weight", both)
            numbers.add(f"memory.{layer}.{level}.bias", module.biases[index])
    for name, tensor in conv_tensors("reader", reader).items():
        numbers.add(name, tensor)
    for name, tensor in (policy.tensors if policy else {}).items():
        numbers.add(name, tensor)
    # In full: large weights of opposite signs cancel, and halves would not.
    numbers.add("probe.weight", probe.weight, "f4")
    numbers.add("probe.bias", probe.bias, "f4")
    header: dict[str, Any] = {
        "format": FORMAT,
        "about": {
            **about,
            "parameters": sum(p.numel() for p in model.parameters()),
            "cells": memory.cells,
        },
        "task": task_header(task, learned or task),
        "memory": {**network(memory), "fit": read_write.fit},
        "reader": {
            **network(reader),
            "fit": read_write.query_fits[0],
            "sees": len(memory.spec),
        },
        **({"policy": policy.header} if policy else {}),
        "probe": {"reach": probe.reach, "period": probe.period, "channels": list(channels)},
        "tensors": numbers.index,
    }
    text = json.dumps(header, indent=1, sort_keys=True) + "\n"
    return {"memory.json": text.encode(), "memory.bin": b"".join(numbers.parts)}


def network(module: MultigridMemory | MultigridCNN) -> dict[str, Any]:
    """What a network is, for the header."""
    return {
        "input": _layer(module.input),
        "base": list(module.base),
        "layers": _mesh(module.spec),
        "residual": module.residual,
    }


def conv_tensors(part: str, cnn: MultigridCNN) -> dict[str, Tensor]:
    """Weights and biases of a multigrid CNN by the page's names."""
    tensors = {}
    for layer, module in enumerate(cnn.layers):
        assert isinstance(module, MultigridConv)
        for index, level in enumerate(module.layer.levels):
            tensors[f"{part}.{layer}.{level}.weight"] = module.weights[index]
            tensors[f"{part}.{layer}.{level}.bias"] = module.biases[index]
    return tensors


def _playable(model: nn.Module, task: Task) -> tuple[MultigridMemory, MultigridReader, ReadWrite]:
    """The parts of a model that the page can run; anything else is an error that says why."""
    if not isinstance(task, Mapping):
        raise UsageError(f"the page walks through mazes, this memory was trained to {task.name}")
    if not isinstance(model, ReadWrite):
        raise UsageError("the page runs multigrid memories; this model is none")
    memory, reader = model.memory, model.readers[0]
    assert isinstance(reader, MultigridReader)
    plain = memory.peephole == "none" and not memory.norms and not reader._normed
    if not plain or memory.kernel != 3 or reader.kernel != 3 or len(memory.base) != 2:
        raise UsageError(
            "the page runs 2D memories with kernels of 3, without peepholes and norm; "
            f"this one has kernel {memory.kernel}, peephole {memory.peephole!r}, base {memory.base}"
        )
    return memory, reader, model


def _probe(model: nn.Module, task: Mapping, episodes: int) -> tuple[LinearProbe, tuple[int, int]]:
    steps = query_steps(task.episode_length, _PROBE_MOMENTS).tolist()
    moments = collect(model, task, SeedStream(TEST_SEED, "train"), 0, episodes, steps)
    return fit_probe(moments, task), best_channels(moments, task)


def task_header(task: Mapping, learned: Mapping) -> dict[str, Any]:
    """The walks of the page; motion and steps are those that the memory learned from."""
    scale = 2 / task.grid if task.location_scale is None else task.location_scale
    raw = task.location == "raw"
    return {
        "world": task.world,
        "fov": task.fov,
        "query": task.queries[0],
        "grid": task.grid,
        "start": task.start,
        "motion": learned.motion,
        "steps": learned.episode_length,
        "location": {"shift": task.world if raw else 0, "scale": 1 if raw else scale},
    }


def _layer(layer: LayerSpec) -> list[int]:
    return [layer.lowest, layer.highest, layer.channels]


def _mesh(spec: MeshSpec) -> list[list[int]]:
    return [_layer(layer) for layer in spec]
