"""Published weights: safetensors with the experiment's configuration in the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialize
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.files import read_tensors, tensors_digest, write_atomically

_FORMAT = "mgmem-weights-2"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64)


@dataclass(frozen=True)
class Weights:
    """Weights as read from a file: float32, with what they are about and their checksum."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]
    sha256: str


def save_weights(
    path: Path, weights: dict[str, Tensor], about: dict[str, Any], *, half: bool = False
) -> str:
    """Write weights, in half precision if asked for, with ``about``; returns their checksum."""
    stored, text = _stored(weights, half), json.dumps(about, sort_keys=True)
    checksum = tensors_digest(stored, text)
    metadata = {"format": _FORMAT, "about": text, "sha256": checksum}
    write_atomically(path, serialize(stored, metadata))
    return checksum


def digest(weights: dict[str, Tensor], about: dict[str, Any], *, half: bool = False) -> str:
    """The checksum that a file of these weights would have."""
    return tensors_digest(_stored(weights, half), json.dumps(about, sort_keys=True))


def _stored(weights: dict[str, Tensor], half: bool) -> dict[str, Tensor]:
    return {
        name: (t.half() if half and t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in weights.items()
    }


def load_weights(path: Path) -> Weights:
    """Read weights as float32, and what they are about; anything else is a clear error."""
    metadata, tensors = read_tensors(path)
    if metadata.get("format") != _FORMAT:
        raise UsageError(
            f"{path}: a safetensors file, but not weights published by this version of mgmem"
        )
    text, found = metadata.get("about", ""), metadata.get("sha256")
    if found != tensors_digest(tensors, text):
        raise UsageError(f"{path}: damaged (its checksum does not match its content)")
    about = _described(path, text)
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise UsageError(f"{path}: {name} is {tensor.dtype}, which no weights of mgmem are")
    check_finite(tensors, path)
    floats = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    return Weights(floats, about, str(found))


def _described(path: Path, text: str) -> dict[str, Any]:
    """What weights are about: typed, so that nothing later stumbles over it."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: its description is damaged") from None
    if not _is_description(about):
        raise UsageError(f"{path}: its description does not say what it has to: {text[:200]}")
    return dict(about)


def _is_description(about: Any) -> bool:
    if not isinstance(about, dict):
        return False
    task, trained = about.get("task", {}), about.get("trained", {})
    return (
        isinstance(about.get("experiment"), str)
        and about.get("recipe") in ("fast", "paper")
        and type(about.get("seed")) is int
        and 0 <= about["seed"] < 2**63
        and isinstance(task, dict)
        and all(isinstance(value, str) for value in task.values())
        and isinstance(trained, dict)
        and set(trained) <= {"updates", "steps", "seconds"}
        and all(type(trained.get(name, 0)) is int for name in ("updates", "steps"))
        and type(trained.get("seconds", 0.0)) in (int, float)
        and all(0 <= value < 2**63 for value in trained.values())
    )


def check_finite(weights: Mapping[str, Tensor], source: object) -> None:
    """An error that names the first tensor with a value that is no number."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UsageError(f"{source}: {name} holds values that are not finite")


def check_fits(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: object
) -> None:
    """An error that names the first tensor which is not of the name, kind and shape expected."""
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected:
            side = "lacks" if name not in weights else "has an unknown"
            raise UsageError(f"{source} {side} tensor {name}: it belongs to another model")
        found, wanted = weights[name], expected[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise UsageError(
                f"{source}: {name} is {found.dtype} {tuple(found.shape)}, this model has "
                f"{wanted.dtype} {tuple(wanted.shape)}"
            )


def fill(model: torch.nn.Module, weights: dict[str, Tensor], source: object) -> None:
    """Load weights into a model; a mismatch is an error that names the first odd tensor."""
    check_fits(weights, model.state_dict(), source)
    model.load_state_dict(weights)
