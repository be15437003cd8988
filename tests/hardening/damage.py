"""Seeded damage: to any bytes, to safetensors with a right checksum, to nested plain values."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from random import Random
from typing import Any

import torch

COUNT = int(os.environ.get("MGMEM_FUZZ", "160"))
"""Damaged files in all; ``MGMEM_FUZZ=10000`` by hand."""

ODD: list[Any] = [
    None, True, -1, 0, 1, 7, 2**31, 2**63, 2**70, -(2**70), 0.5, float("nan"), float("inf"), 1e308,
    "", "x", "0/../../x", "[/x]", "\ud800", "9" * 5000, [], [[]], {}, {"x": 1}, [None], {"": {}},
]  # fmt: skip
"""Values that stand where others were expected."""


def odd_tensors() -> list[torch.Tensor]:
    return [
        torch.zeros(0),
        torch.zeros(()),
        torch.full((3,), float("nan")),
        torch.zeros(2, 3, dtype=torch.complex64),
        torch.zeros(4, dtype=torch.bool),
        torch.zeros(5, dtype=torch.int64),
        torch.zeros(3).to(torch.float8_e4m3fn),
        torch.zeros(1).expand(10**12),
        torch.zeros(2, 2, device="meta"),
        torch.zeros(2, 2).to_sparse(),
    ]


def damaged(content: bytes, draw: Random) -> bytes:
    """Other bytes: flipped, cut, filled, moved, put in, taken out, doubled, or all new."""
    while True:
        made = bytearray(content)
        at, size = draw.randrange(len(made) or 1), draw.choice([1, 1, 2, 8, 64, 4096])
        match draw.randrange(8):
            case 0:
                for _ in range(draw.choice([1, 1, 1, 5, 50])):
                    made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
            case 1:
                del made[at:]
            case 2:
                made[at : at + size] = bytes([draw.choice([0, 255, 34, 125])]) * size
            case 3:
                made[at:at] = draw.randbytes(size)
            case 4:
                del made[at : at + size]
            case 5:
                made += draw.choice([draw.randbytes(size), content])
            case 6:
                other = draw.randrange(len(made))
                made[at : at + size], made[other : other + size] = (
                    made[other : other + size],
                    made[at : at + size],
                )
            case _:
                made = bytearray(draw.choice([b"", draw.randbytes(size), b"\x80\x02}q\x00."]))
        if bytes(made) != content:
            return bytes(made)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a nested value."""
    yield path
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, key))


def odd(content: dict[Any, Any], draw: Random, values: list[Any]) -> dict[Any, Any]:
    """The same with one place changed: another value, one taken away, one more, or one for two."""
    made = copy.deepcopy(content)
    *path, key = draw.choice([place for place in places(made) if place])
    holder: Any = made
    for step in path:
        holder = holder[step]
    match draw.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[draw.choice(["more", 99, ""])] = draw.choice(values)
        case 2 if isinstance(holder[key], int | float):
            holder[key] = draw.choice([-1, 1, -holder[key], holder[key] * 1000, 2**40])
        case _:
            holder[key] = draw.choice(values)
    return made
