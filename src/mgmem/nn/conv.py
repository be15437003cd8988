"""MG-conv layers, and the plain multigrid CNN that they stack up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import nn

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.nn.chain import chain, summands
from mgmem.nn.inputs import Input, as_pyramid
from mgmem.nn.parameters import listed
from mgmem.pyramid import Pyramid
from mgmem.spec import (
    LayerSpec,
    Mesh,
    MeshSpec,
    as_layer,
    as_mesh,
    conv_costs,
    cost_table,
    grid_shape,
)

Init = Literal["he", "reference"]


class MultigridConv(nn.Module):
    """One MG-conv layer: each level convolves its neighbours below; bias, ReLU, optional norm.

    Weights start as He et al. (2015) have it, so that what a ReLU halves is made good. The
    reference's narrower start loses five sixths of the variance in each layer, and in layers of
    four channels ReLUs that never open again soon leave one path or none: see
    ``reset_parameters``.
    """

    def __init__(
        self,
        below: LayerSpec,
        layer: LayerSpec,
        *,
        dims: int = 2,
        kernel: int = 3,
        relu: bool = True,
        norm: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_kernel(kernel)
        self.layer, self.relu = layer, relu
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for level in layer.levels:
            fan_in = below.channels_read_by(level)
            weight = torch.empty(
                layer.channels, fan_in, *[kernel] * dims, device=device, dtype=dtype
            )
            self.weights.append(nn.Parameter(weight))
            bias = torch.empty(layer.channels, device=device, dtype=dtype)
            self.biases.append(nn.Parameter(bias))
        self.norm = PyramidNorm(layer, dims, device, dtype) if norm else None
        self.reset_parameters()

    def reset_parameters(self, init: Init = "he") -> None:
        """Start afresh, the norm too.

        "he": normal weights of variance 2 / fan-in, biases 0; "reference": weights and biases
        uniform in ±1/sqrt(fan-in), as the reference has them.
        """
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.is_meta:
                continue  # nothing to draw; asked to, PyTorch imports its compiler for seconds
            if init == "he":
                nn.init.kaiming_normal_(weight, nonlinearity="relu")
                nn.init.zeros_(bias)
            else:
                bound = 1 / math.sqrt(weight[0].numel())
                nn.init.uniform_(weight, -bound, bound)
                nn.init.uniform_(bias, -bound, bound)
        if self.norm is not None:
            self.norm.reset_parameters()

    def forward(self, inputs: Pyramid) -> Pyramid:
        """Grids (N, channels below, *space) to grids (N, channels, *space)."""
        weights, biases = listed(self.weights), listed(self.biases)
        outputs = ops.conv_layer(inputs, weights, biases, self.layer.lowest, self.relu)
        return outputs if self.norm is None else self.norm(outputs)


class PyramidNorm(nn.Module):
    """Batch norm on each level; statistics over everything but the channels."""

    def __init__(
        self,
        layer: LayerSpec,
        dims: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind = nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d
        self.levels = nn.ModuleList(
            kind(layer.channels, eps=0.001, device=device, dtype=dtype) for _ in layer.levels
        )

    def reset_parameters(self) -> None:
        """Start afresh, statistics too."""
        for level in self.levels:
            cast("nn.BatchNorm2d", level).reset_parameters()

    def forward(self, pyramid: Pyramid) -> Pyramid:
        """Grids (N, channels, *space), normalised."""
        pairs = zip(self.levels, pyramid, strict=True)
        return Pyramid(pyramid.lowest, tuple(norm(grid) for norm, grid in pairs))


class MultigridCNN(nn.Module):
    """MG-conv layers one after another; the last without ReLU unless ``final_relu``.

    With ``sees`` (the mesh of a memory) each of the first ``len(sees)`` layers' outputs is joined
    by the memory's hidden state of that layer before the next layer reads it: that is a reader.

    With ``residual``, every second layer (3, 5, ..., counting from 1) adds what layer l-2 handed
    on, on the levels that both have, missing channels zero-padded; where layer l-2 hands on more
    channels than layer l has, nothing is added.
    """

    def __init__(
        self,
        input: int | str | LayerSpec,
        spec: Mesh,
        base: Sequence[int] = (3, 3),
        *,
        kernel: int = 3,
        norm: bool = False,
        residual: bool = True,
        final_relu: bool = False,
        sees: MeshSpec | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input, self.spec, self.base = as_layer(input), as_mesh(spec), check_base(base)
        self.kernel, self.residual, self.sees = kernel, residual, sees
        self.spec.check_input(self.input)
        self.layers = nn.ModuleList()
        below = self.input
        for index, layer in enumerate(self.spec):
            last = index == len(self.spec) - 1
            self.layers.append(
                MultigridConv(
                    below,
                    layer,
                    dims=len(self.base),
                    kernel=kernel,
                    relu=final_relu or not last,
                    norm=norm,
                    device=device,
                    dtype=dtype,
                )
            )
            joined = sees[index].channels if sees is not None and index < len(sees) else 0
            below = LayerSpec(layer.lowest, layer.highest, layer.channels + joined)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(channels, *space) of the finest grid of the last layer."""
        return (self.spec[-1].channels, *grid_shape(self.base, self.spec[-1].highest))

    def reset_parameters(self, init: Init = "he") -> None:
        """Start afresh; see ``MultigridConv.reset_parameters``."""
        for layer in cast("list[MultigridConv]", list(self.layers)):
            layer.reset_parameters(init)

    def forward(self, x: Input, memory: Sequence[Pyramid] = ()) -> Pyramid:
        """x (N, C, *space) or a pyramid of such; ``memory``: the hidden state of each layer seen.

        Returns the pyramid of the last layer, grids (N, channels, *space).
        """
        inputs = as_pyramid(x, self.input, self.base, next(self.parameters()))
        dims = len(self.base)
        for grid in inputs:
            if grid.dim() != 2 + dims:
                raise UsageError(
                    f"input of shape {tuple(grid.shape)}: expected (N, channels, *space), "
                    f"{2 + dims} dimensions"
                )
        recorded_outputs = recorded.run_network(self, inputs, memory, inputs.grids[0].shape[:1])
        if recorded_outputs is not None:
            return recorded_outputs

        def join(index: int, outputs: Pyramid) -> Pyramid:
            return outputs.join(memory[index], dims) if index < len(memory) else outputs

        add = partial(add_residual, dims=dims) if self.residual else None
        return chain(self.layers, inputs, lambda _, layer, below: layer(below), add, join)[-1]

    def __repr__(self) -> str:
        costs = conv_costs(
            self.spec, self.input, self.base, kernel=self.kernel, sees=self.sees, norm=self._normed
        )
        return cost_table(costs, f"{type(self).__name__} on input {self.input}")

    @property
    def _normed(self) -> bool:
        return any(isinstance(module, PyramidNorm) for module in self.modules())


def add_residual(outputs: Pyramid, earlier: Pyramid, dims: int) -> Pyramid:
    """Add ``earlier`` as ``summands`` says, padding missing channels with zeros."""
    grids = []
    for grid, other in zip(outputs, summands(outputs, earlier, dims), strict=True):
        if other is not None:
            missing = grid.shape[-1 - dims] - other.shape[-1 - dims]
            grid = grid + (F.pad(other, [0, 0] * dims + [0, missing]) if missing else other)
        grids.append(grid)
    return Pyramid(outputs.lowest, tuple(grids))


def check_kernel(kernel: int) -> None:
    """Raise unless the kernel is odd, so that it has a centre."""
    if kernel < 1 or kernel % 2 == 0:
        raise UsageError(f"kernel size {kernel}: give an odd number, such as 3")


def check_base(base: Sequence[int]) -> tuple[int, ...]:
    """The base grid as a tuple; raise unless it is 1D or 2D with positive sides."""
    if isinstance(base, int):
        raise UsageError(f"base {base}: write ({base},) for a row or ({base}, {base}) for a square")
    base = tuple(base)
    if len(base) not in (1, 2) or any(side < 1 for side in base):
        raise UsageError(f"base grid {base}: give one or two positive sides, such as (3, 3)")
    return base
