"""Published weights: safetensors with the experiment's configuration in the metadata."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from mgmem.errors import UsageError
from mgmem.training.checkpoint import write_atomically

_FORMAT = "mgmem-weights-1"


def save_weights(
    path: Path, weights: dict[str, Tensor], about: dict[str, Any], *, half: bool = False
) -> None:
    """Write weights, in half precision if asked for, with ``about`` as JSON in the metadata."""
    stored = {
        name: (t.half() if half and t.is_floating_point() else t).detach().contiguous()
        for name, t in weights.items()
    }
    metadata = {
        "format": _FORMAT,
        "about": json.dumps(about, sort_keys=True),
        "sha256": _digest(stored),
    }
    write_atomically(path, serialize(stored, metadata))


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read weights as float32, and what they are about; anything else is a clear error."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            weights = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({error})") from None
    if metadata.get("format") != _FORMAT:
        raise UsageError(f"{path}: a safetensors file, but not weights published by mgmem")
    try:
        about = json.loads(metadata["about"])
    except (KeyError, json.JSONDecodeError):
        raise UsageError(f"{path}: its description is damaged") from None
    if metadata.get("sha256") != _digest(weights):
        raise UsageError(f"{path}: damaged (its checksum does not match its content)")
    floats = {torch.float16, torch.bfloat16}
    return {n: t.float() if t.dtype in floats else t for n, t in weights.items()}, about


def _digest(weights: dict[str, Tensor]) -> str:
    """A checksum of all names and values: safetensors itself has none."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fill(model: torch.nn.Module, weights: dict[str, Tensor], source: object) -> None:
    """Load weights into a model; a mismatch is an error that names the first odd tensor."""
    expected = model.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected:
            side = "lacks" if name not in weights else "has an unknown"
            raise UsageError(f"{source} {side} tensor {name}: it belongs to another model")
        if weights[name].shape != expected[name].shape:
            raise UsageError(
                f"{source}: {name} is {tuple(weights[name].shape)}, "
                f"this model has {tuple(expected[name].shape)}"
            )
    model.load_state_dict(weights)
