"""The memory: a mesh of MG-conv-LSTM layers that writes what it sees into its own grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.nn.conv import PyramidNorm, add_residual, as_pyramid, check_base, check_dtype
from mgmem.nn.lstm import MultigridConvLSTM
from mgmem.nn.state import MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, MeshSpec, Peephole, as_layer, as_mesh, cost_table, memory_costs

if TYPE_CHECKING:
    from mgmem.nn.reader import MultigridReader


class MultigridMemory(nn.Module):
    """A recurrent memory spread over a pyramid of grids (the paper's writer).

    Args:
        input: channels of the input at level 0, or one token such as ``"0-2:1"`` for an input on
            several levels.
        spec: the mesh, such as ``"0-1:4 0-2:8"``.
        base: sides of level 0, one (1D) or two (2D); level j has them times 2**j.
        kernel: odd size of all convolutions.
        peephole: "none", "channel" or "cell".
        norm: batch norm on each layer's output, between layers, never inside the recurrence.
            Its statistics run over time x batch, so in training a sequence run in one call and
            the same sequence run in chunks differ; in ``eval()`` they agree.
        residual: layers 3, 5, ... add the output of layer l-2 to what they hand on.
        forget_bias: initial bias of the forget gates.
        checkpoint_every: keep activations for so many time steps only and compute them again in
            the backward pass: less memory, more work, the same numbers.
        check_finite: debug mode; raise if an input holds NaN or infinity.
    """

    def __init__(
        self,
        input: int | str | LayerSpec,
        spec: str | MeshSpec,
        base: Sequence[int] = (3, 3),
        *,
        kernel: int = 3,
        peephole: Peephole = "none",
        norm: bool = False,
        residual: bool = True,
        forget_bias: float = 1.0,
        checkpoint_every: int | None = None,
        check_finite: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if checkpoint_every is not None and (checkpoint_every < 1 or norm):
            raise UsageError(
                "checkpoint_every needs a positive number of steps and no norm, whose statistics "
                f"span the whole sequence; given checkpoint_every={checkpoint_every}, norm={norm}"
            )
        self.input, self.spec, self.base = as_layer(input), as_mesh(spec), check_base(base)
        self.kernel, self.peephole, self.residual = kernel, peephole, residual
        self.checkpoint_every, self.check_finite = checkpoint_every, check_finite
        self.spec.check_input(self.input)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        below = self.input
        for layer in self.spec:
            self.layers.append(
                MultigridConvLSTM(
                    below,
                    layer,
                    self.base,
                    kernel=kernel,
                    peephole=peephole,
                    forget_bias=forget_bias,
                    device=device,
                    dtype=dtype,
                )
            )
            if norm:
                self.norms.append(PyramidNorm(layer, len(self.base), device, dtype))
            below = layer
        # Kept, because every call checks its state against them.
        empty = self.initial_state(0, device=torch.device("meta")).tensors()
        self._state_shapes = {name: tensor.shape[1:] for name, tensor in empty.items()}

    def forward(
        self,
        x: Tensor | Pyramid,
        state: MemoryState | None = None,
        *,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """Write a sequence.

        Args:
            x: (time, batch, channels, *space), or a pyramid of such.
            state: from an earlier call, or None for an empty memory.
            lengths: (batch,) steps of each sequence; from there on its state stays as it is and
                its outputs are zero.
            reset: (time, batch) bool; True empties that sequence's memory before that step.

        Returns:
            h: for each layer the pyramid of hidden states (time, batch, channels, *space), so
                ``h[layer][level]`` is readable at any layer and level; and the state to go on.
        """
        if state is not None and reset is None and lengths is None:
            done = recorded.run_step(self, x, state)
            if done is not None:
                return done
        inputs = as_pyramid(x, self.input, self.base)
        time, batch = self._check_sequence(inputs)
        state = self.initial_state(batch) if state is None else self._checked(state, batch)
        reset = _checked_flags(reset, time, batch)
        active = _active(lengths, time, batch, inputs.finest.device)
        if reset is not None and active is not None:
            reset = reset & active  # a sequence that has ended keeps its state
        chunk = self.checkpoint_every
        if chunk is None or time <= chunk or not torch.is_grad_enabled():
            return self._run(inputs, state, reset, active)
        outputs = []
        for start in range(0, time, chunk):
            part = slice(start, start + chunk)
            h, state = checkpoint(
                self._run_with,
                ops.chosen_backend(),
                inputs.map(lambda grid, part=part: grid[part]),  # type: ignore[misc]
                state,
                None if reset is None else reset[part],
                None if active is None else active[part],
                use_reentrant=False,
            )
            outputs.append(h)
        return _concatenated(outputs), state

    def step(
        self, x: Tensor | Pyramid, state: MemoryState | None = None
    ) -> tuple[Any, MemoryState]:
        """One time step: x (batch, channels, *space); h as in ``forward`` but without time."""
        inputs = x.map(lambda grid: grid[None]) if isinstance(x, Pyramid) else x[None]
        h, state = self(inputs, state)
        return tuple(layer.map(lambda grid: grid[0]) for layer in h), state

    def _run_with(
        self,
        backend: str,
        inputs: Pyramid,
        state: MemoryState,
        reset: Tensor | None,
        active: Tensor | None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """``_run``, computed again in the backward pass the way it was in the forward pass."""
        with ops.backend(backend):
            return self._run(inputs, state, reset, active)

    def _run(
        self, outputs: Pyramid, state: MemoryState, reset: Tensor | None, active: Tensor | None
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """All layers over one stretch of time."""
        handed_on: list[Pyramid] = []
        states = []
        for index, (layer, old) in enumerate(zip(self.layers, state.layers, strict=True)):
            outputs, new = layer(outputs, old, reset, active)
            if self.norms:
                outputs = _over_time(self.norms[index], outputs, active)
            if self.residual and index >= 2 and index % 2 == 0:
                outputs = add_residual(outputs, handed_on[index - 2], len(self.base))
            handed_on.append(outputs)
            states.append(new)
        return tuple(handed_on), MemoryState(tuple(states))

    def initial_state(
        self, batch: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> MemoryState:
        """An empty memory for ``batch`` sequences."""
        layers = cast("list[MultigridConvLSTM]", list(self.layers))
        return MemoryState(tuple(m.initial_state(batch, device, dtype) for m in layers))

    def state_from_tensors(self, tensors: Mapping[str, Tensor]) -> MemoryState:
        """A state of this memory from named tensors, checked against the mesh."""
        state = MemoryState.from_tensors(tensors)
        return self._checked(state, state.batch)

    def reader(
        self, input: int | str | LayerSpec | None = None, *, tail: str | MeshSpec, **options: Any
    ) -> MultigridReader:
        """A reader of this memory; any number may share it. See ``MultigridReader``."""
        from mgmem.nn.reader import MultigridReader

        weight = next(self.parameters())
        like_self = {"kernel": self.kernel, "device": weight.device, "dtype": weight.dtype}
        options = {**like_self, **options}
        return MultigridReader(
            self.spec, self.input if input is None else input, tail, self.base, **options
        )

    @property
    def cells(self) -> int:
        """Memory cells per sequence."""
        return sum(cost.cells for cost in memory_costs(self.spec, self.input, self.base))

    def __repr__(self) -> str:
        costs = memory_costs(
            self.spec,
            self.input,
            self.base,
            kernel=self.kernel,
            peephole=self.peephole,
            norm=bool(self.norms),
        )
        return cost_table(costs, f"{type(self).__name__} on input {self.input}")

    def _check_sequence(self, inputs: Pyramid) -> tuple[int, int]:
        expected_dims = 3 + len(self.base)
        for grid in inputs:
            if grid.dim() != expected_dims:
                raise UsageError(
                    f"input of shape {tuple(grid.shape)}: expected (time, batch, channels, "
                    f"*space), {expected_dims} dimensions; step() takes one step without time"
                )
            check_dtype(grid, next(self.parameters()))
            if self.check_finite and not bool(torch.isfinite(grid).all()):
                raise UsageError("the input holds NaN or infinity; the memory was left as it was")
        leading = {tuple(grid.shape[:2]) for grid in inputs}
        if len(leading) > 1:
            raise UsageError(f"input levels differ in (time, batch): {sorted(leading)}")
        return inputs.grids[0].shape[0], inputs.grids[0].shape[1]

    def _checked(self, state: MemoryState, batch: int) -> MemoryState:
        """The state, if it fits this mesh and batch; else an error naming both sides."""
        expected, given = self._state_shapes, state.tensors()
        dtype = next(self.parameters()).dtype
        if given.keys() != expected.keys():
            odd = sorted(given.keys() ^ expected.keys())[0]
            side = "only the state has" if odd in given else "the state lacks"
            raise UsageError(f"a state of another mesh: {side} {odd}; this mesh is {self.spec}")
        for name, tensor in given.items():
            if tensor.shape[1:] != expected[name]:
                raise UsageError(
                    f"a state of another mesh: {name} is {tuple(tensor.shape[1:])}, "
                    f"{self.spec} on base {self.base} has {tuple(expected[name])}"
                )
            if tensor.shape[0] != batch:
                raise UsageError(
                    f"a state for batch size {tensor.shape[0]}, an input of batch size {batch}"
                )
            if tensor.dtype != dtype:
                raise UsageError(
                    f"a state of dtype {tensor.dtype}, weights of {dtype}: use state.to(dtype)"
                )
        return state


def _over_time(norm: nn.Module, pyramid: Pyramid, active: Tensor | None) -> Pyramid:
    """Normalise with statistics over time x batch; padding is left out and stays zero."""
    if active is not None:
        normed = norm(pyramid.map(lambda grid: grid[active]))
        pairs = zip(pyramid, normed, strict=True)
        grids = (torch.zeros_like(old).index_put((active,), new) for old, new in pairs)
        return Pyramid(pyramid.lowest, tuple(grids))
    leading = pyramid.finest.shape[:2]
    flat = norm(pyramid.map(lambda grid: grid.flatten(0, 1)))
    return flat.map(lambda grid: grid.unflatten(0, leading))


def _concatenated(chunks: Sequence[tuple[Pyramid, ...]]) -> tuple[Pyramid, ...]:
    """Chunks of outputs, each a pyramid per layer, joined over time."""
    layers = zip(*chunks, strict=True)
    return tuple(
        Pyramid(parts[0].lowest, tuple(torch.cat(g) for g in zip(*parts, strict=True)))
        for parts in layers
    )


def _checked_flags(reset: Tensor | None, time: int, batch: int) -> Tensor | None:
    if reset is None:
        return None
    if reset.dtype != torch.bool or tuple(reset.shape) != (time, batch):
        raise UsageError(
            f"reset is {reset.dtype} of shape {tuple(reset.shape)}; expected torch.bool of shape "
            f"(time, batch) = {(time, batch)}"
        )
    return reset


def _active(lengths: Tensor | None, time: int, batch: int, device: torch.device) -> Tensor | None:
    """(time, batch) bool from (batch,) lengths."""
    if lengths is None:
        return None
    if tuple(lengths.shape) != (batch,) or lengths.is_floating_point():
        raise UsageError(
            f"lengths is {lengths.dtype} of shape {tuple(lengths.shape)}; expected integers of "
            f"shape (batch,) = {(batch,)}"
        )
    if bool((lengths < 0).any()) or bool((lengths > time).any()):
        raise UsageError(f"lengths {lengths.tolist()}: each must be between 0 and time = {time}")
    return torch.arange(time, device=device)[:, None] < lengths.to(device)
