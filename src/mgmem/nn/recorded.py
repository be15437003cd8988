"""Small inference in one native call: a step of a memory, a pass through a multigrid CNN.

Layer by layer, a small network spends most of its time between the layers. So what it does is
recorded once for each shape and then run as a whole. The numbers are the same, every result is a
new tensor, and the weights are read on every run. Whatever is out of the ordinary (gradients,
another backend, norms, hooks, odd shapes, grids that are large anyway) gives None: the caller then
goes layer by layer, and that way has all the error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from mgmem import ops
from mgmem.nn.chain import chain, summands
from mgmem.nn.inputs import Flags
from mgmem.nn.parameters import listed, plain_parameters
from mgmem.nn.recording import Kind, Recording, recording_of
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
    few = 0 < samples <= _MOST
    return few and not torch.is_grad_enabled() and ops.picks_native(inputs.grids)


def run_step(
    memory: MultigridMemory, x: Tensor | Pyramid, state: MemoryState, reset: Flags | None
) -> tuple[tuple[Pyramid, ...], MemoryState] | None:
    """``MultigridMemory.forward`` for inputs (1, batch, channels, *space), reset (1, batch)."""
    from mgmem.nn.lstm import MultigridConvLSTM

    inputs = Pyramid(memory.input.lowest, (x,)) if isinstance(x, Tensor) else x
    time, batch, *_ = *inputs.grids[0].shape, 0, 0
    if time != 1 or inputs.lowest != memory.input.lowest or not _usual(batch, inputs):
        return None
    layers = tuple(memory.layers._modules.values())
    parameters = plain_parameters(layers, MultigridConvLSTM)
    if parameters is None or memory.norms or memory.peephole != "none" or memory.check_finite:
        return None
    if memory.dropout and memory.training:
        return None
    if reset is not None and not isinstance(reset, Tensor):
        return None
    flags = [] if reset is None else [reset]
    recording = recording_of(
        memory,
        (batch, memory.residual, layers, len(flags)),
        lambda new: _record_memory(new, memory, batch, bool(flags)),
    )
    if recording is None:
        return None
    old = [grid for layer in state.layers for pyramid in layer for grid in pyramid.grids]
    made = recording.run([*parameters, *flags, *_contiguous(inputs), *old])
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


def _record_memory(recording: Recording, memory: MultigridMemory, batch: int, resets: bool) -> None:
    """All layers; results are their outputs, then h and c of each."""
    program, base, spec = recording.program, memory.base, memory.spec.layers
    layers = cast("list[MultigridConvLSTM]", list(memory.layers))
    weights = [_parameters(recording, layer) for layer in layers]
    step = (1, batch)
    reset = recording.take("given", step, dtype=torch.bool) if resets else None
    inputs = _places(recording, "given", memory.input, base, batch, step)
    old = [[_places(recording, "given", layer, base, batch) for _ in "hc"] for layer in spec]
    outputs = [_places(recording, "made", layer, base, batch, step) for layer in spec]
    new = [[_places(recording, "made", layer, base, batch) for _ in "hc"] for layer in spec]

    def run(index: int, _: LayerSpec, below: Places) -> Places:
        results = [outputs[index], *new[index]]
        program.lstm(below, old[index], weights[index], results, reset)
        return outputs[index]

    chain(spec, inputs, run, _adder(recording, len(base)) if memory.residual else None)


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
    made = recording.run([*parameters, *_contiguous(inputs), *seen])
    return None if made is None else Pyramid(network.spec.layers[-1].lowest, tuple(made))


def _record_network(recording: Recording, network: MultigridCNN, leading: torch.Size) -> None:
    """All layers, those that see a memory joined with it; results are the last layer's outputs."""
    program, base, samples = recording.program, network.base, leading.numel()
    layers = cast("list[MultigridConv]", list(network.layers))
    weights = [_parameters(recording, layer) for layer in layers]
    inputs = _places(recording, "given", network.input, base, samples, leading)
    sees = network.sees.layers if network.sees else ()
    memory = [_places(recording, "given", layer, base, samples, leading) for layer in sees]

    def made(index: int, spec: LayerSpec, final: bool) -> Places:
        kind: Kind | None = "made" if final and index == len(layers) - 1 else None
        return _places(recording, kind, spec, base, samples, leading)

    def run(index: int, layer: MultigridConv, below: Places) -> Places:
        outputs = made(index, layer.layer, index >= len(sees))
        program.conv(below, weights[index], outputs, layer.relu)
        return outputs

    def join(index: int, outputs: Places) -> Places:
        if index >= len(sees):
            return outputs
        spec = layers[index].layer
        both = LayerSpec(spec.lowest, spec.highest, spec.channels + sees[index].channels)
        joined = made(index, both, True)
        for part, channel in ((outputs, 0), (memory[index], spec.channels)):
            for source, to in zip(part.grids, joined.grids, strict=True):
                program.copy(source, to, channel)
        return joined

    chain(layers, inputs, run, _adder(recording, len(base)) if network.residual else None, join)


def _adder(recording: Recording, dims: int) -> Callable[[Places, Places], Places]:
    """As ``add_residual``, in place."""

    def add(outputs: Places, earlier: Places) -> Places:
        for to, source in zip(outputs.grids, summands(outputs, earlier, dims), strict=True):
            if source is not None:
                recording.program.add(source, to)
        return outputs

    return add


def _parameters(recording: Recording, layer: nn.Module) -> list[list[Place]]:
    """Those of a layer: for each kind one per level."""
    lists = cast("list[nn.ParameterList]", list(layer.children()))
    return [[recording.take("given", p.shape) for p in listed(group)] for group in lists]


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
