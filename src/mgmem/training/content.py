"""What a checkpoint holds, looked at before any of it is used.

A checksum says that a file is as it was written, not by whom. Every part is checked here for its
kind, and against the run that is to go on with it, so that nothing later stumbles over it.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mgmem.training import checkpoint
from mgmem.training.checkpoint import DamagedCheckpoint
from mgmem.training.weights import check_finite, check_fits

if TYPE_CHECKING:
    from mgmem.training.stage import StageRun


class _Short(reprlib.Repr):
    def repr_Tensor(self, tensor: Tensor, level: int) -> str:  # by this name it is looked up
        return "a tensor"


_short = _Short()
_MOST = 2**62
_DEEPEST = 10


@dataclass
class Budget:
    """What training took."""

    updates: int = 0
    steps: int = 0
    """Environment steps: time steps of each of the batch's sequences."""
    seconds: float = 0.0


@dataclass
class Progress:
    """How far a run has come; part of the checkpoint."""

    stage: int = 0
    updates: int = 0
    """Of this run, in the stages that are finished."""
    before: dict[str, Any] = field(default_factory=lambda: asdict(Budget()))
    """What the finished stages took, and the weights that the run started from."""
    seconds: float = 0.0
    """Wall time of this run so far, evaluations included."""
    best: float | None = None
    curve: list[dict[str, float]] = field(default_factory=list)


def spent(progress: dict[str, Any], update: int, steps: int) -> Budget:
    """All that a run's weights took, what they started from included; as its checkpoint says."""
    before = Budget(**progress["before"])
    return Budget(
        before.updates + update, before.steps + steps, before.seconds + progress["seconds"]
    )


def newest(folder: Path, metric: str) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest checkpoint of a run folder that is whole and of the right kind; what was wrong.

    metric: the name of the task's deciding metric, which every point of the curve has.
    """
    return checkpoint.newest(folder, lambda content: check(content, metric))


def check(content: dict[str, Any], metric: str) -> None:
    """Raise DamagedCheckpoint unless every part is of its kind."""
    kinds: dict[str, type] = {"about": dict, "command": str, "recipe": dict, "progress": dict}
    kinds |= {"stage": dict, "model": dict, "random": Tensor}
    _expect(content.keys() == kinds.keys(), "its parts", list(content))
    for name, kind in kinds.items():
        _expect(isinstance(content[name], kind), name, content[name])
    _expect(_is_plain(content["about"]), "about", content["about"])
    _check_recipe(content["recipe"])
    _check_progress(content["progress"], len(content["recipe"]["stages"]), metric)
    _check_stage(content["stage"])
    _expect(_is_tensors(content["model"]), "model", content["model"])
    try:
        torch.Generator().set_state(content["random"])
    except (RuntimeError, TypeError):
        raise DamagedCheckpoint("its random numbers are none") from None


def check_stage(content: dict[str, Any], run: StageRun, source: object) -> None:
    """Raise UsageError unless a stage's content is of the stage and model that ``run`` begins.

    Before the model's weights are loaded: finding out what the optimiser keeps changes them.
    """
    weights = run.model.state_dict()
    _expect(content["update"] <= run.stage.updates, "its update", content["update"])
    _expect(run.average is None or content["average"] is not None, "average", None)
    for part in ("average", "best"):
        if content[part] is not None:
            check_fits(content[part], weights, f"{source}: {part}")
            check_finite(content[part], f"{source}: {part}")
    _expect(_is_alike(content["feed"], run.feed.state_dict()), "feed", content["feed"])
    _check_moments(content["optimizer"]["state"], run)
    share = run.stage.batch // run.share.world
    empty = run.model.initial_state(share, torch.device("meta")).tensors()
    for tensors in content["states"]:
        _expect(not tensors or _is_state(tensors, empty), "the memory carried on", list(tensors))


def _check_recipe(recipe: dict[str, Any]) -> None:
    stages = recipe.get("stages")
    fits = _is_plain(recipe) and isinstance(stages, list) and bool(stages)
    fits = fits and all(isinstance(s, dict) and _is_count(s.get("updates")) for s in stages or ())
    _expect(fits, "recipe", recipe)


def _check_progress(progress: dict[str, Any], stages: int, metric: str) -> None:
    names = {one.name for one in fields(Progress)}
    _expect(progress.keys() == names, "progress", list(progress))
    before = progress["before"]
    known = isinstance(before, dict) and before.keys() == {one.name for one in fields(Budget)}
    _expect(known and all(map(_is_figure, before.values())), "progress.before", before)
    for name in ("stage", "updates"):
        _expect(_is_count(progress[name]), f"progress.{name}", progress[name])
    _expect(progress["stage"] < stages, "progress.stage", progress["stage"])
    _expect(_is_figure(progress["seconds"]), "progress.seconds", progress["seconds"])
    best = progress["best"]
    _expect(best is None or _is_number(best), "progress.best", best)
    curve = progress["curve"]
    fits = isinstance(curve, list) and all(_is_point(point, metric) for point in curve)
    _expect(fits, "progress.curve", curve)


def _check_stage(stage: dict[str, Any]) -> None:
    names = {"update", "loss", "average", "best", "optimizer", "feed", "states"}
    _expect(stage.keys() == names, "stage", list(stage))
    _expect(_is_count(stage["update"]), "stage.update", stage["update"])
    _expect(type(stage["loss"]) is float, "stage.loss", stage["loss"])
    for part in ("average", "best"):
        fits = stage[part] is None or _is_tensors(stage[part])
        _expect(fits, f"stage.{part}", stage[part])
    optimizer, feed, states = stage["optimizer"], stage["feed"], stage["states"]
    fits = isinstance(optimizer, dict) and isinstance(optimizer.get("state"), dict)
    _expect(fits, "stage.optimizer", optimizer)
    fits = isinstance(feed, dict) and _is_count(feed.get("steps"))
    _expect(fits, "stage.feed", feed)
    fits = isinstance(states, list) and all(map(_is_tensors, states))
    _expect(fits, "stage.states", states)


def _check_moments(found: dict[Any, Any], run: StageRun) -> None:
    """What an optimiser keeps is what it has after a step of no gradient at all."""
    for parameter in run.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run.optimizer.step()
    kept = run.optimizer.state_dict()["state"]
    for index, values in found.items():
        wanted = kept.get(index)
        fits = isinstance(values, dict) and wanted is not None and values.keys() == wanted.keys()
        _expect(fits, "stage.optimizer", index)
        for name, value in values.items():
            _expect(_is_moment(value, wanted[name]), f"stage.optimizer.{index}.{name}", value)


def _is_moment(value: Any, like: Any) -> bool:
    if not isinstance(like, Tensor):
        return _is_count(value)
    fits = _is_tensor(value) and value.shape == like.shape and value.dtype == like.dtype
    return fits and bool(torch.isfinite(value).all()) and (value.dim() > 0 or bool(value >= 0))


def _is_state(tensors: Mapping[str, Tensor], empty: Mapping[str, Tensor]) -> bool:
    """Whether this is a state like the empty one; sides that are 0 in it may have grown, alike."""
    grown = set()
    for name, tensor in tensors.items():
        like = empty.get(name)
        if like is None or tensor.dim() != like.dim():
            return False
        if tensor.is_floating_point() != like.is_floating_point() or tensor.is_complex():
            return False
        for side, wanted in zip(tensor.shape, like.shape, strict=True):
            if wanted == 0:
                grown.add(side)
            elif side != wanted:
                return False
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return False
    return tensors.keys() == empty.keys() and len(grown) <= 1


def _is_alike(found: Any, like: Any) -> bool:
    """Whether plain values have the kinds that others have; counts and figures not below 0."""
    if isinstance(like, dict):
        same = isinstance(found, dict) and found.keys() == like.keys()
        return same and all(_is_alike(found[key], value) for key, value in like.items())
    if isinstance(like, list):
        same = isinstance(found, list) and len(found) == len(like)
        return same and all(map(_is_alike, found, like))
    return _is_count(found) if type(like) is int else _is_figure(found)


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether JSON could hold it."""
    if isinstance(value, dict) and depth < _DEEPEST:
        return all(type(k) is str and _is_plain(v, depth + 1) for k, v in value.items())
    if isinstance(value, list) and depth < _DEEPEST:
        return all(_is_plain(part, depth + 1) for part in value)
    return value is None or type(value) in (str, int, float, bool)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_figure(value: Any) -> bool:
    return _is_number(value) and 0 <= value < _MOST


def _is_point(point: Any, metric: str) -> bool:
    """Whether this is a point of a learning curve; a loss may be no number."""
    named = isinstance(point, dict) and point.keys() >= {metric, "steps"}
    return named and all(
        type(name) is str and type(value) in (int, float) for name, value in point.items()
    )


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, Tensor) and value.layout is torch.strided and value.device.type == "cpu"
    )


def _is_tensors(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(type(name) is str and _is_tensor(tensor) for name, tensor in value.items())


def _expect(fits: bool, what: str, found: Any) -> None:
    if not fits:
        is_tensor = isinstance(found, Tensor)
        words = f"{found.dtype} {tuple(found.shape)}" if is_tensor else _short.repr(found)
        raise DamagedCheckpoint(f"not a checkpoint of mgmem: {what} is {words[:100]}")
