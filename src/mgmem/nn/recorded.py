"""Small inference in one native call: a step of a memory, a pass through a multigrid CNN.

Layer by layer, a small network spends most of its time between the layers. So what it does is
recorded once for each shape and then run as a whole. The numbers are the same, every result is a
new tensor, and the weights are read on every run. Whatever is out of the ordinary (gradients,
another backend, norms, hooks, odd shapes, grids that are large anyway) gives None: the caller then
goes layer by layer, and that way has all the error messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.nn.recording import Kind, Recording, plain_parameters, recording_of
from mgmem.nn.state import LayerState, MemoryState
from mgmem.ops.native.program import Place, Places
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, grid_shape

if TYPE_CHECKING:
    from mgmem.nn.conv import MultigridCNN, MultigridConv
    from mgmem.nn.lstm import MultigridConvLSTM
    from mgmem.nn.memory import MultigridMemory


_MOST = 64
"""Samples up to which it is tried: many have much work in every layer."""


def _usual(samples: int, inputs: Pyramid) -> bool:
    return 0 < samples <= _MOST and not torch.is_grad_enabled() and ops.picks_native(inputs)


def run_step(
    memory: MultigridMemory, x: Tensor | Pyramid, state: MemoryState
) -> tuple[tuple[Pyramid, ...], MemoryState] | None:
    """``MultigridMemory.forward`` for inputs (1, batch, channels, *space)."""
    from mgmem.nn.lstm import MultigridConvLSTM

    inputs = Pyramid(memory.input.lowest, (x,)) if isinstance(x, Tensor) else x
    time, batch, *_ = *inputs.grids[0].shape, 0, 0
    if time != 1 or inputs.lowest != memory.input.lowest or not _usual(batch, inputs):
        return None
    layers = tuple(memory.layers._modules.values())
    parameters = plain_parameters(layers, MultigridConvLSTM)
    if parameters is None or memory.norms or memory.peephole != "none" or memory.check_finite:
        return None
    recording = recording_of(
        memory, (batch, memory.residual, layers), lambda new: _record_memory(new, memory, batch)
    )
    if recording is None:
        return None
    old = [grid for layer in state.layers for pyramid in layer for grid in pyramid.grids]
    made = recording.run(parameters, [*_contiguous(inputs), *old])
    return None if made is None else _memory_results(memory.spec.layers, made)


def _memory_results(
    spec: Sequence[LayerSpec], made: list[Tensor]
) -> tuple[tuple[Pyramid, ...], MemoryState]:
    outputs, states, start = [], [], 0
    for layer in spec:
        stop = start + layer.highest - layer.lowest + 1
        outputs.append(Pyramid(layer.lowest, tuple(made[start:stop])))
        start = stop
    for output in outputs:
        levels = len(output.grids)
        h, c = made[start : start + levels], made[start + levels : start + 2 * levels]
        lowest = output.lowest
        states.append(LayerState(Pyramid(lowest, tuple(h)), Pyramid(lowest, tuple(c))))
        start += 2 * levels
    return tuple(outputs), MemoryState(tuple(states))


def _record_memory(recording: Recording, memory: MultigridMemory, batch: int) -> None:
    """All layers; results are their outputs, then h and c of each."""
    program, base, spec = recording.program, memory.base, memory.spec.layers
    layers = cast("list[MultigridConvLSTM]", list(memory.layers))
    weights = [_parameters(recording, layer) for layer in layers]
    step = (1, batch)
    inputs = _places(recording, "given", memory.input, base, batch, step)
    old = [[_places(recording, "given", layer, base, batch) for _ in "hc"] for layer in spec]
    outputs = [_places(recording, "made", layer, base, batch, step) for layer in spec]
    new = [[_places(recording, "made", layer, base, batch) for _ in "hc"] for layer in spec]
    for index in range(len(spec)):
        below = outputs[index - 1] if index else inputs
        program.lstm(below, old[index], weights[index], [outputs[index], *new[index]])
        if memory.residual and index >= 2 and index % 2 == 0:
            _record_residual(recording, outputs[index], outputs[index - 2])


def run_network(
    network: MultigridCNN, inputs: Pyramid, memory: Sequence[Pyramid], leading: torch.Size
) -> Pyramid | None:
    """``MultigridCNN.forward`` for grids (*leading, channels, *space)."""
    from mgmem.nn.conv import MultigridConv

    if not _usual(leading.numel(), inputs):
        return None
    layers = tuple(network.layers._modules.values())
    parameters = plain_parameters(layers, MultigridConv)
    if parameters is None or len(memory) != (len(network.sees.layers) if network.sees else 0):
        return None
    relus = tuple([layer.relu for layer in layers])
    recording = recording_of(
        network,
        (leading, network.residual, layers, relus),
        lambda new: _record_network(new, network, leading),
    )
    if recording is None:
        return None
    seen = [grid for layer in memory for grid in _contiguous(layer)]
    made = recording.run(parameters, [*_contiguous(inputs), *seen])
    return None if made is None else Pyramid(network.spec.layers[-1].lowest, tuple(made))


def _record_network(recording: Recording, network: MultigridCNN, leading: torch.Size) -> None:
    """All layers, those that see a memory joined with it; results are the last layer's outputs."""
    program, base, samples = recording.program, network.base, leading.numel()
    layers = cast("list[MultigridConv]", list(network.layers))
    weights = [_parameters(recording, layer) for layer in layers]
    below = _places(recording, "given", network.input, base, samples, leading)
    sees = network.sees.layers if network.sees else ()
    memory = [_places(recording, "given", layer, base, samples, leading) for layer in sees]
    handed_on: list[Places] = []
    for index, layer in enumerate(layers):
        spec, last = layer.layer, index == len(layers) - 1
        joined = memory[index] if index < len(memory) else None
        kind: Kind | None = "made" if last else None
        outputs = _places(recording, None if joined else kind, spec, base, samples, leading)
        program.conv(below, weights[index], outputs, layer.relu)
        if network.residual and index >= 2 and index % 2 == 0:
            _record_residual(recording, outputs, handed_on[index - 2])
        if joined is not None:
            both = LayerSpec(spec.lowest, spec.highest, spec.channels + sees[index].channels)
            parts = (outputs, joined)
            outputs = _places(recording, kind, both, base, samples, leading)
            for part, channel in zip(parts, (0, spec.channels), strict=True):
                for source, to in zip(part.grids, outputs.grids, strict=True):
                    program.copy(source, to, channel)
        handed_on.append(outputs)
        below = outputs


def _record_residual(recording: Recording, outputs: Places, earlier: Places) -> None:
    """As ``add_residual``: on the levels that both have, unless the earlier has more channels."""
    for level, grid in enumerate(outputs.grids, outputs.lowest):
        index = level - earlier.lowest
        if 0 <= index < len(earlier.grids) and earlier.grids[index].shape[1] <= grid.shape[1]:
            recording.program.add(earlier.grids[index], grid)


def _parameters(recording: Recording, layer: nn.Module) -> list[list[Place]]:
    """Those of a layer: for each kind one per level."""
    lists = cast("list[nn.ParameterList]", list(layer.children()))
    return [[recording.take("parameter", p.shape) for p in group] for group in lists]


def _places(
    recording: Recording,
    kind: Kind | None,
    layer: LayerSpec,
    base: Sequence[int],
    samples: int,
    leading: Sequence[int] | None = None,
) -> Places:
    """A pyramid from outside or, without a kind, in the program's own memory."""
    shapes = [(samples, layer.channels, *grid_shape(base, level)) for level in layer.levels]
    if kind is None:
        return Places(layer.lowest, [recording.program.memory(shape) for shape in shapes])
    return Places(layer.lowest, [recording.take(kind, shape, leading) for shape in shapes])


def _contiguous(pyramid: Pyramid) -> list[Tensor]:
    return [grid if grid.is_contiguous() else grid.contiguous() for grid in pyramid.grids]
