"""MG-conv layers, and the plain multigrid CNN that they stack up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, as_layer, as_mesh, conv_costs, cost_table, grid_shape

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
        self.reset_parameters()
        self.norm = PyramidNorm(layer, dims, device, dtype) if norm else None

    def reset_parameters(self, init: Init = "he") -> None:
        """Start afresh.

        "he": normal weights of variance 2 / fan-in, biases 0; "reference": weights and biases
        uniform in ±1/sqrt(fan-in), as the reference has them.
        """
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if init == "he":
                nn.init.kaiming_normal_(weight, nonlinearity="relu")
                nn.init.zeros_(bias)
            else:
                bound = 1 / math.sqrt(weight[0].numel())
                nn.init.uniform_(weight, -bound, bound)
                nn.init.uniform_(bias, -bound, bound)

    def forward(self, inputs: Pyramid) -> Pyramid:
        """Grids (N, channels below, *space) to grids (N, channels, *space)."""
        weights, biases = listed(self.weights), listed(self.biases)
        outputs = ops.conv_layer(inputs, weights, biases, self.layer.lowest, self.relu)
        return outputs if self.norm is None else self.norm(outputs)


def listed(parameters: nn.ParameterList) -> list[Tensor]:
    """The parameters in order. Iterating a ParameterList costs more than a small layer's work."""
    return list(parameters._parameters.values())  # type: ignore[arg-type]


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
        spec: str | MeshSpec,
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

    def forward(self, x: Tensor | Pyramid, memory: Sequence[Pyramid] = ()) -> Pyramid:
        """x (N, C, *space) or a pyramid of such; ``memory``: the hidden state of each layer seen.

        Returns the pyramid of the last layer, grids (N, channels, *space).
        """
        outputs = as_pyramid(x, self.input, self.base)
        for grid in outputs:
            if grid.dim() != 2 + len(self.base):
                raise UsageError(
                    f"input of shape {tuple(grid.shape)}: expected (N, channels, *space), "
                    f"{2 + len(self.base)} dimensions"
                )
            check_dtype(grid, next(self.parameters()))
        recorded_outputs = recorded.run_network(self, outputs, memory, outputs.grids[0].shape[:1])
        if recorded_outputs is not None:
            return recorded_outputs
        handed_on: list[Pyramid] = []
        for index, layer in enumerate(self.layers):
            outputs = layer(outputs)
            if self.residual and index >= 2 and index % 2 == 0:
                outputs = add_residual(outputs, handed_on[index - 2], len(self.base))
            if index < len(memory):
                outputs = outputs.join(memory[index], len(self.base))
            handed_on.append(outputs)
        return outputs

    def __repr__(self) -> str:
        costs = conv_costs(
            self.spec, self.input, self.base, kernel=self.kernel, sees=self.sees, norm=self._normed
        )
        return cost_table(costs, f"{type(self).__name__} on input {self.input}")

    @property
    def _normed(self) -> bool:
        return any(isinstance(module, PyramidNorm) for module in self.modules())


def add_residual(outputs: Pyramid, earlier: Pyramid, dims: int) -> Pyramid:
    """Add ``earlier`` where both have a level, padding missing channels with zeros."""
    channel = -1 - dims
    grids = []
    for level, grid in zip(outputs.levels, outputs, strict=True):
        other = earlier.get(level)
        missing = 0 if other is None else grid.shape[channel] - other.shape[channel]
        if other is None or missing < 0:
            grids.append(grid)
        elif missing == 0:
            grids.append(grid + other)
        else:
            grids.append(grid + F.pad(other, [0, 0] * dims + [0, missing]))
    return Pyramid(outputs.lowest, tuple(grids))


def as_pyramid(x: Tensor | Pyramid, layer: LayerSpec, base: Sequence[int]) -> Pyramid:
    """An input as a pyramid, checked: (..., channels, *space) on each of the layer's levels."""
    if isinstance(x, Tensor):
        if len(layer.levels) > 1:
            raise UsageError(
                f"the input has levels {layer.lowest} to {layer.highest}: give a Pyramid, "
                f"not one tensor of shape {tuple(x.shape)}"
            )
        x = Pyramid(layer.lowest, (x,))
    if x.levels != layer.levels:
        raise UsageError(
            f"the input pyramid has levels {list(x.levels)}, "
            f"this network was built for {list(layer.levels)}"
        )
    for level, grid in zip(x.levels, x, strict=True):
        expected = (layer.channels, *grid_shape(base, level))
        given = tuple(grid.shape[-len(expected) :])
        if given != expected:
            raise UsageError(
                f"input of shape {tuple(grid.shape)} at level {level}: its last dimensions are "
                f"{given}, this network was built for {expected} (channels, *space)"
            )
    return x


def check_dtype(grid: Tensor, weight: Tensor) -> None:
    """Raise unless an input has the dtype of the weights; under autocast any will do."""
    if grid.dtype != weight.dtype and not torch.is_autocast_enabled(grid.device.type):
        raise UsageError(
            f"input of dtype {grid.dtype}, weights of {weight.dtype}: convert one of them"
        )


def check_kernel(kernel: int) -> None:
    """Raise unless the kernel is odd, so that it has a centre."""
    if kernel < 1 or kernel % 2 == 0:
        raise UsageError(f"kernel size {kernel}: give an odd number, such as 3")


def check_base(base: Sequence[int]) -> tuple[int, ...]:
    """The base grid as a tuple; raise unless it is 1D or 2D with positive sides."""
    base = tuple(base)
    if len(base) not in (1, 2) or any(side < 1 for side in base):
        raise UsageError(f"base grid {base}: give one or two positive sides, such as (3, 3)")
    return base
