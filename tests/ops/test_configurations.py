"""Random networks, whole: native equals the reference in outputs, states and gradients.

Gradients are held to 1e-3 of their largest value or, where the reference itself is further from its
float64 self (batch norm over a few numbers), to four times that. Where a ReLU is at zero or two
cells tie for a maximum, rounding decides which way a gradient goes: so they have three draws of the
numbers to agree in, and a wrong kernel would fail in all of them.

A hundred of them here; ``MGMEM_CONFIGURATIONS=2000`` asks for more.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from comparing import shaken
from mgmem import MultigridMemory, Pyramid, backend
from mgmem.ops import native
from mgmem.spec import LayerSpec, MeshSpec, grid_shape

COUNT = int(os.environ.get("MGMEM_CONFIGURATIONS", "100"))
PARTS = 10


def mesh(draw: random.Random, below: LayerSpec, layers: int, highest: int) -> MeshSpec:
    """Layers each of whose levels reads some level of the one below."""
    found: list[LayerSpec] = []
    for _ in range(layers):
        reach = range(max(below.lowest - 1, 0), min(below.highest + 1, highest) + 1)
        ends = sorted(draw.choices(reach, k=2))
        below = LayerSpec(ends[0], ends[1], draw.choice([1, 2, 3, 4, 5, 8, 9, 17]))
        found.append(below)
    return MeshSpec(tuple(found))


class Configuration:
    """A network and what it is given, drawn from a seed; its numbers from another."""

    def __init__(self, seed: int, numbers: int) -> None:
        draw = random.Random(seed)
        torch.manual_seed(1_000_003 * numbers + seed)
        dims = draw.choice([1, 2, 2])
        base = tuple(draw.choice([1, 2, 3, 3, 4, 5, 7]) for _ in range(dims))
        kernel = draw.choice([1, 3, 3, 3, 5])
        lowest = draw.choice([0, 0, 0, 1])
        input = LayerSpec(lowest, lowest + draw.choice([0, 0, 1, 2]), draw.choice([1, 2, 3, 4]))
        spec = mesh(draw, input, draw.choice([1, 2, 3, 4]), 3)
        tail = mesh(draw, spec[-1], draw.choice([1, 2, 3]), 3)
        options: dict[str, Any] = {"kernel": kernel, "norm": draw.random() < 0.25}
        options["residual"] = draw.random() < 0.7
        peephole: Any = draw.choice(["none", "none", "channel", "cell"])
        self.memory = MultigridMemory(input, spec, base, peephole=peephole, **options)
        self.reader = self.memory.reader(tail=tail, final_relu=draw.random() < 0.5, **options)
        for module in (self.memory, self.reader):
            shaken(module, 0.1)
        self.time, self.batch = draw.choice([1, 1, 2, 3, 5]), draw.choice([1, 2, 3, 5, 9, 17])
        if options["norm"]:  # which refuses to train on one number
            self.batch = max(self.batch, 2)
        self.threads = draw.choice([1, 2, 3])
        self.flags: dict[str, Any] = {}
        if draw.random() < 0.4:
            self.flags["reset"] = torch.rand(self.time, self.batch) < 0.3
        if draw.random() < 0.4:
            lengths = torch.randint(0, self.time + 1, (self.batch,))
            lengths[:2] = self.time
            self.flags["lengths"] = lengths
        self.x, self.query = (self._grids(input, base) for _ in range(2))
        drawn = self.memory.initial_state(self.batch).map(torch.randn_like)
        self.state = drawn if draw.random() < 0.6 else None
        self.words = f"seed {seed}: {input} {spec} | {tail} on {base}, {options}, {peephole}"

    def _grids(self, layer: LayerSpec, base: tuple[int, ...]) -> Pyramid:
        shapes = [(layer.channels, *grid_shape(base, level)) for level in layer.levels]
        leading = (self.time, self.batch)
        return Pyramid(layer.lowest, tuple(torch.randn(*leading, *shape) for shape in shapes))

    def double(self) -> Configuration:
        """The same in float64."""
        self.memory.double(), self.reader.double()
        self.x, self.query = (pyramid.to(torch.float64) for pyramid in (self.x, self.query))
        self.state = None if self.state is None else self.state.to(torch.float64)
        return self

    def results(self, way: str) -> dict[str, Tensor | None]:
        """Outputs, states and gradients by name, for pulls that are always the same."""
        leaves = {f"x{j}": grid.clone().requires_grad_() for j, grid in enumerate(self.x)}
        state = self.state
        if state is not None:
            state = state.map(lambda tensor: tensor.clone().requires_grad_())
            leaves |= state.tensors()
        x = Pyramid(self.x.lowest, tuple(leaves[f"x{j}"] for j in range(len(self.x))))
        leaves |= {f"memory.{name}": p for name, p in self.memory.named_parameters()}
        leaves |= {f"reader.{name}": p for name, p in self.reader.named_parameters()}
        with backend(way):
            h, after = self.memory(x, state, **self.flags)
            answer = self.reader(self.query, h)
            answers = answer if isinstance(answer, Pyramid) else [answer]
            made = {f"answer {j}": grid for j, grid in enumerate(answers)}
            made |= {f"h {n}.{j}": g for n, layer in enumerate(h) for j, g in enumerate(layer)}
            made |= {f"after {name}": tensor for name, tensor in after.tensors().items()}
            torch.manual_seed(0)
            pulls = [
                torch.randn(tensor.shape).to(tensor) / tensor[0].numel() ** 0.5
                for tensor in made.values()
            ]
            gradients = torch.autograd.grad(
                list(made.values()), list(leaves.values()), pulls, allow_unused=True
            )
        named = zip(leaves, gradients, strict=True)
        return made | {f"gradient of {name}": g for name, g in named}


def disagreement(seed: int, numbers: int) -> str | None:
    """The first gradient that differs; outputs and states may not, whatever the numbers."""
    case = Configuration(seed, numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native.library, "threads", lambda: case.threads)
        got, expected = case.results("native"), case.results("reference")
    exact: dict[str, Tensor | None] = {}
    assert got.keys() == expected.keys()
    for name, right in expected.items():
        ours = got[name]
        if right is None or ours is None:
            assert ours is right, f"{case.words}: {name}"
            continue
        if (error := distance(ours, right)) <= 1e-3:
            continue
        words = f"{case.words}: {name} differs by {error:.1e}"
        assert name.startswith("gradient"), words
        exact = exact or Configuration(seed, numbers).double().results("reference")
        wide = exact[name]
        assert wide is not None
        if distance(ours, wide) > 1e-3 + 4 * distance(right, wide):
            return words
    return None


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, in units of the largest value."""
    if one.numel() == 0:
        return 0.0
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max()) / max(float(other.abs().max()), 1e-3)


@pytest.mark.skipif(not native.available(), reason="no C++ compiler here")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_networks_agree(part: int) -> None:
    for seed in range(part, COUNT, PARTS):
        found = []
        while len(found) < 3 and (differs := disagreement(seed, len(found))):
            found.append(differs)
        assert len(found) < 3, found
