"""The memory: a mesh of MG-conv-LSTM layers that writes what it sees into its own grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.nn import recorded
from mgmem.nn.chain import chain
from mgmem.nn.conv import PyramidNorm, add_residual, check_base
from mgmem.nn.inputs import (
    Flags,
    Input,
    as_active,
    as_flags,
    as_pyramid,
    as_state,
    packed_like,
    swapped,
    unpacked,
)
from mgmem.nn.lstm import MultigridConvLSTM
from mgmem.nn.norms import CausalNorm, Norm, SequenceNorm
from mgmem.nn.state import LayerState, MemoryState
from mgmem.pyramid import Pyramid
from mgmem.spec import LayerSpec, Mesh, Peephole, as_layer, as_mesh, cost_table, memory_costs

if TYPE_CHECKING:
    from typing_extensions import Self

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
        norm: of each layer's output, between layers, never inside the recurrence. "batch" (or
            True) is batch norm; its statistics run over time x batch, so in training a sequence
            run in one call and the same sequence run in chunks differ; in ``eval()`` they agree.
            "causal" and "sequence": see ``mgmem.nn.norms``.
        dropout: share of each layer's output that is set to zero in training, on its way to the
            next layer and to readers; never inside the recurrence.
        residual: layers 3, 5, ... add the output of layer l-2 to what they hand on.
        forget_bias: initial bias of the forget gates.
        checkpoint_every: keep activations for so many time steps only and compute them again in
            the backward pass: less memory, more work, the same numbers.
        check_finite: debug mode; raise if an input holds NaN or infinity.
        batch_first: sequences are (batch, time, ...), going in (``x``, ``reset``) and coming out
            (``h``); states are as ever.
    """

    def __init__(
        self,
        input: int | str | LayerSpec,
        spec: Mesh,
        base: Sequence[int] = (3, 3),
        *,
        kernel: int = 3,
        peephole: Peephole = "none",
        norm: bool | Norm = False,
        dropout: float = 0.0,
        residual: bool = True,
        forget_bias: float = 1.0,
        checkpoint_every: int | None = None,
        check_finite: bool = False,
        batch_first: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise UsageError(f"dropout {dropout}: give a share from 0 to less than 1")
        spanning = norm not in (False, "none", "causal")
        if checkpoint_every is not None and (checkpoint_every < 1 or spanning):
            raise UsageError(
                "checkpoint_every needs a positive number of steps and no norm whose statistics "
                f"span the whole sequence; given checkpoint_every={checkpoint_every}, norm={norm}"
            )
        self.input, self.spec, self.base = as_layer(input), as_mesh(spec), check_base(base)
        self.kernel, self.peephole, self.residual = kernel, peephole, residual
        self.dropout = dropout
        self.checkpoint_every, self.check_finite = checkpoint_every, check_finite
        self.batch_first, self.frozen = batch_first, False
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
            if norm and norm != "none":
                self.norms.append(_new_norm(norm, layer, len(self.base), device, dtype))
            below = layer
        # Kept, because every call checks its state against them.
        empty = self.initial_state(0, device=torch.device("meta")).tensors()
        self._state_shapes = {name: tensor.shape[1:] for name, tensor in empty.items()}

    def reset_parameters(self) -> None:
        """Start all weights afresh, and the statistics of the norms."""
        for module in (*self.layers, *self.norms):
            if not isinstance(module, nn.Identity):
                cast("MultigridConvLSTM | PyramidNorm", module).reset_parameters()

    def freeze(self, frozen: bool = True) -> Self:
        """Keep what was learned: no parameter gets a gradient, and no norm moves.

        Norms stay in evaluation mode under ``train()`` too, until ``freeze(False)``.
        """
        self.frozen = frozen
        self.requires_grad_(not frozen)
        return self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode; frozen, always the latter."""
        return super().train(mode and not self.frozen)

    def forward(
        self,
        x: Input | PackedSequence,
        state: MemoryState | Sequence[Any] | None = None,
        *,
        lengths: Flags | None = None,
        reset: Flags | None = None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """Write a sequence.

        Args:
            x: (time, batch, channels, *space), or a pyramid of such; an array; or packed.
            state: from an earlier call, or None for an empty memory; also its layers alone, or
                (h, c) with one pyramid per layer in each.
            lengths: (batch,) steps of each sequence; from there on its state stays as it is and
                its outputs are zero.
            reset: (time, batch) bool; True empties that sequence's memory before that step.

        Returns:
            h: for each layer the pyramid of hidden states (time, batch, channels, *space), so
                ``h[layer][level]`` is readable at any layer and level; packed if ``x`` is; and
                the state to go on.
        """
        if isinstance(x, PackedSequence):
            padded, lengths = unpacked(x, lengths)
            h, after = self._write(padded, state, lengths, reset)
            return tuple(layer.map(partial(packed_like, x)) for layer in h), after
        if not self.batch_first:
            return self._write(x, state, lengths, reset)
        h, after = self._write(swapped(x), state, lengths, swapped(reset))
        return tuple(layer.map(swapped) for layer in h), after

    def _write(
        self,
        x: Input,
        before: MemoryState | Sequence[Any] | None,
        lengths: Flags | None,
        reset: Flags | None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """``forward`` for time-major sequences that are not packed."""
        state = None if before is None else as_state(before)
        if state is not None and lengths is None and isinstance(x, Tensor | Pyramid):
            done = recorded.run_step(self, x, state, reset)
            if done is not None:
                return done
        inputs = as_pyramid(x, self.input, self.base, next(self.parameters()))
        time, batch = self._check_sequence(inputs)
        device = inputs.finest.device
        state = self.initial_state(batch) if state is None else self._checked(state, batch)
        active = None if lengths is None else as_active(lengths, time, batch, device)
        if reset is not None:
            reset = as_flags(reset, (time, batch), "(time, batch)", device)
            # A sequence that has ended keeps its state.
            reset = reset if active is None else reset & active
        chunk = self.checkpoint_every
        if chunk is None or time <= chunk or not torch.is_grad_enabled():
            return self._run(inputs, state, reset, active)
        outputs = []
        for start in range(0, time, chunk):
            part = slice(start, start + chunk)
            h, state = checkpoint(
                self._run_with,
                ops.chosen_backend(),
                inputs.map(itemgetter(part)),
                state,
                None if reset is None else reset[part],
                None if active is None else active[part],
                use_reentrant=False,
            )
            outputs.append(h)
        return _concatenated(outputs), state

    def step(
        self,
        x: Input,
        state: MemoryState | Sequence[Any] | None = None,
        *,
        reset: Flags | None = None,
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """One time step: x (batch, channels, *space); h as in ``forward`` but without time.

        ``reset`` (batch,) bool: True empties that sequence's memory before the step.
        """
        now = 1 if self.batch_first else 0
        longer = partial(_with_time, now)
        if reset is not None:
            reset = longer(reset if isinstance(reset, Tensor) else torch.as_tensor(reset))
        h, after = self(x.map(longer) if isinstance(x, Pyramid) else longer(x), state, reset=reset)
        return tuple(layer.map(lambda grid: grid.select(now, 0)) for layer in h), after

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
        self, inputs: Pyramid, state: MemoryState, reset: Tensor | None, active: Tensor | None
    ) -> tuple[tuple[Pyramid, ...], MemoryState]:
        """All layers over one stretch of time."""
        states: list[LayerState] = []

        def run(index: int, layer: nn.Module, below: Pyramid) -> Pyramid:
            outputs, new = layer(below, state.layers[index], reset, active)
            states.append(new)
            if self.norms:
                outputs = _over_time(self.norms[index], outputs, active)
            if self.dropout and self.training:
                outputs = outputs.map(partial(F.dropout, p=self.dropout))
            return outputs

        add = partial(add_residual, dims=len(self.base)) if self.residual else None
        return tuple(chain(self.layers, inputs, run, add)), MemoryState(tuple(states))

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
        self,
        input: int | str | LayerSpec | None = None,
        *,
        tail: Mesh,
        kernel: int | None = None,
        norm: bool = False,
        residual: bool = True,
        final_relu: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> MultigridReader:
        """A reader of this memory; any number may share it. See ``MultigridReader``.

        Input, kernel, device and dtype are the memory's own where none are given.
        """
        from mgmem.nn.reader import MultigridReader

        weight = next(self.parameters())
        return MultigridReader(
            self.spec,
            self.input if input is None else input,
            tail,
            self.base,
            kernel=self.kernel if kernel is None else kernel,
            norm=norm,
            residual=residual,
            final_relu=final_relu,
            batch_first=self.batch_first,
            device=device or weight.device,
            dtype=dtype or weight.dtype,
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


def _with_time(dim: int, x: Any) -> Any:
    """A tensor, or an array, of one step as a sequence."""
    return x[:, None] if dim else x[None]


def _new_norm(
    kind: bool | Norm,
    layer: LayerSpec,
    dims: int,
    device: torch.device | None,
    dtype: torch.dtype | None,
) -> nn.Module:
    if kind in (True, "batch"):
        return PyramidNorm(layer, dims, device, dtype)
    if kind not in ("causal", "sequence"):
        raise UsageError(f"norm {kind!r}: give 'none', 'batch', 'sequence' or 'causal'")
    return (CausalNorm if kind == "causal" else SequenceNorm)(layer, device, dtype)


def _over_time(norm: nn.Module, pyramid: Pyramid, active: Tensor | None) -> Pyramid:
    """Normalise; padding is left out of the statistics and stays zero."""
    if isinstance(norm, CausalNorm | SequenceNorm):
        return norm(pyramid, active)
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
