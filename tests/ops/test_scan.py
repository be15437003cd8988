"""The layer-major way equals the equations: outputs, states and every gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from comparing import TOLERANCE, assert_all_close, named_outputs, random_state, shaken
from mgmem import MultigridMemory, Pyramid, UsageError, backend, set_backend
from mgmem.ops import reference, scan
from mgmem.ops.reference import LSTMWeights
from mgmem.spec import LayerSpec, as_layer, grid_shape

TIME, BATCH = 5, 3
# The layer below, the layer, the base grid: 1D and 2D, odd bases, one level and many.
MESHES = [
    ("0:2", "0:3", (5,)),
    ("0-1:2", "0-2:2", (3,)),
    ("0:3", "0-1:2", (3, 3)),
    ("1-2:2", "0-3:2", (1, 3)),
    ("0-1:1", "1:2", (5, 2)),
]
MASKS = ["none", "reset", "active", "both"]

Layer = Callable[..., tuple[Pyramid, Pyramid, Pyramid]]
Leaves = dict[str, Tensor]


def _leaves(
    below: LayerSpec,
    layer: LayerSpec,
    base: tuple[int, ...],
    kernel: int,
    peephole: str,
    **as_: Any,
) -> Leaves:
    """Everything that a layer's result depends on, by name, requiring gradients."""
    dims, n = len(base), layer.channels
    shapes: dict[str, tuple[int, ...]] = {}
    for level in below.levels:
        shapes[f"x.{level}"] = (TIME, BATCH, below.channels, *grid_shape(base, level))
    for level in layer.levels:
        grid = grid_shape(base, level)
        shapes[f"h.{level}"] = shapes[f"c.{level}"] = (BATCH, n, *grid)
        shapes[f"input.{level}"] = (4 * n, below.channels_read_by(level), *[kernel] * dims)
        shapes[f"recurrent.{level}"] = (4 * n, n, *[kernel] * dims)
        shapes[f"bias.{level}"] = (4 * n,)
        if peephole != "none":
            shapes[f"peephole.{level}"] = (3, n, *(grid if peephole == "cell" else [1] * dims))
    leaves = {name: torch.randn(shape, **as_) for name, shape in shapes.items()}
    for name, leaf in leaves.items():
        if name.startswith(("input", "recurrent")):
            leaf.div_(leaf[0].numel() ** 0.5)
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}


def _masks(kind: str) -> dict[str, Tensor]:
    flags = {"reset": torch.rand(TIME, BATCH) < 0.3, "active": torch.rand(TIME, BATCH) < 0.6}
    return {name: flag for name, flag in flags.items() if kind in (name, "both")}


def _pyramid(leaves: Leaves, name: str) -> Pyramid:
    levels = {
        int(key.split(".")[1]): leaf for key, leaf in leaves.items() if key.startswith(f"{name}.")
    }
    return Pyramid(min(levels), tuple(levels[level] for level in sorted(levels)))


def _apply(layer: Layer, leaves: Leaves, masks: dict[str, Tensor]) -> list[Tensor]:
    peephole = any(name.startswith("peephole") for name in leaves)
    weights = LSTMWeights(
        *(_pyramid(leaves, name).grids for name in ("input", "recurrent", "bias")),
        _pyramid(leaves, "peephole").grids if peephole else None,
    )
    pyramids = layer(*(_pyramid(leaves, name) for name in "xhc"), weights, **masks)
    return [grid for pyramid in pyramids for grid in pyramid]


def _results(
    layer: Layer, leaves: Leaves, masks: dict[str, Tensor], pulls: list[Tensor] | None
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Results and gradients by name, for random pulls on every output and state."""
    results = _apply(layer, leaves, masks)
    pulls = pulls or [torch.randn_like(result) for result in results]
    gradients = torch.autograd.grad(results, list(leaves.values()), pulls)
    named = {f"result {index}": result.detach() for index, result in enumerate(results)}
    named |= {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}
    return named, pulls


@pytest.mark.parametrize(
    ("masks", "dtype"), [*((masks, torch.float64) for masks in MASKS), ("both", torch.float32)]
)
@pytest.mark.parametrize("peephole", ["none", "channel", "cell"])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize(("below", "layer", "base"), MESHES)
def test_scan_equals_reference(
    below: str,
    layer: str,
    base: tuple[int, ...],
    kernel: int,
    peephole: str,
    masks: str,
    dtype: torch.dtype,
) -> None:
    leaves = _leaves(as_layer(below), as_layer(layer), base, kernel, peephole, dtype=dtype)
    flags = _masks(masks)
    expected, pulls = _results(reference.lstm_layer, leaves, flags, None)
    actual, _ = _results(scan.lstm_layer, leaves, flags, pulls)
    assert_all_close(actual, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("peephole", ["none", "channel", "cell"])
def test_gradcheck_passes(masks: str, peephole: str) -> None:
    # Every entry of every Jacobian once, with all there is; random directions for the others.
    fast = (masks, peephole) != ("both", "cell")
    leaves = _leaves(as_layer("0:1"), as_layer("0-1:1"), (2,), 3, peephole, dtype=torch.float64)
    flags = _masks(masks)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_apply(scan.lstm_layer, dict(zip(leaves, tensors, strict=True)), flags))

    assert torch.autograd.gradcheck(function, tuple(leaves.values()), fast_mode=fast)


def test_a_reset_leaves_no_trace_even_of_a_broken_state() -> None:
    leaves = _leaves(as_layer("0:2"), as_layer("0:2"), (3, 3), 3, "none", dtype=torch.float64)
    reset = torch.zeros(TIME, BATCH, dtype=torch.bool)
    reset[0] = True
    with torch.no_grad():
        clean = _apply(scan.lstm_layer, leaves, {"reset": reset})
        for name in ("h.0", "c.0"):
            leaves[name].fill_(torch.nan)
        for layer in (reference.lstm_layer, scan.lstm_layer):
            for actual, expected in zip(
                _apply(layer, leaves, {"reset": reset}), clean, strict=True
            ):
                torch.testing.assert_close(actual, expected)


def test_padding_leaves_no_trace_whatever_it_holds() -> None:
    leaves = _leaves(as_layer("0:2"), as_layer("0:2"), (3, 3), 3, "none", dtype=torch.float64)
    active = torch.arange(TIME)[:, None] < torch.tensor([5, 3, 0])
    with torch.no_grad():
        clean = _apply(scan.lstm_layer, leaves, {"active": active})
        leaves["x.0"][~active] = torch.nan
        for layer in (reference.lstm_layer, scan.lstm_layer):
            for actual, expected in zip(
                _apply(layer, leaves, {"active": active}), clean, strict=True
            ):
                torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("layer", [reference.lstm_layer, scan.lstm_layer])
def test_no_time_steps_change_nothing(layer: Layer) -> None:
    leaves = _leaves(as_layer("0:2"), as_layer("0-1:2"), (3, 3), 3, "channel")
    leaves["x.0"] = leaves["x.0"].detach()[:0].requires_grad_()
    results = _apply(layer, leaves, {})
    assert [tuple(output.shape[:2]) for output in results[:2]] == [(0, BATCH)] * 2
    for state, before in zip(results[2:], ("h.0", "h.1", "c.0", "c.1"), strict=True):
        assert torch.equal(state, leaves[before])
    sum(result.sum() for result in results).backward()  # type: ignore[union-attr]
    assert torch.equal(leaves["h.1"].grad, torch.ones_like(leaves["h.1"]))  # type: ignore[arg-type]


def _whole_network(
    memory: MultigridMemory, x: Tensor, **options: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Results and gradients of a memory under a loss that weighs every number differently."""
    memory.zero_grad()
    torch.manual_seed(1)
    state = random_state(memory, x.shape[1]).map(torch.Tensor.requires_grad_)
    x = x.clone().requires_grad_()
    results = named_outputs(*memory(x, state, **options))
    sum((torch.randn(r.shape, dtype=r.dtype) * r).sum() for r in results.values()).backward()  # type: ignore[union-attr]
    gradients = {name: p.grad.clone() for name, p in memory.named_parameters()}  # type: ignore[union-attr]
    gradients |= {f"state {name}": t.grad for name, t in state.tensors().items()}  # type: ignore[misc]
    gradients["x"] = x.grad  # type: ignore[assignment]
    return {name: result.detach() for name, result in results.items()}, gradients


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("checkpoint_every", [None, 1, 3, 100])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("spec", "base"), [("0-1:2 0-2:3 0-1:4", (1,)), ("0-1:2 0-1:2 0-2:3 1-2:2", (3, 1))]
)
def test_whole_networks_agree_with_checkpoints_lengths_and_resets(
    spec: str,
    base: tuple[int, ...],
    masked: bool,
    checkpoint_every: int | None,
    dtype: torch.dtype,
) -> None:
    memory = shaken(MultigridMemory(2, spec, base, peephole="channel", dtype=dtype))
    assert isinstance(memory, MultigridMemory)
    x = torch.randn(7, 3, 2, *base, dtype=dtype)
    options = {}
    if masked:
        options = {"lengths": torch.tensor([7, 0, 4]), "reset": torch.rand(7, 3) < 0.3}
    with backend("reference"):
        expected = _whole_network(memory, x, **options)
    memory.checkpoint_every = checkpoint_every
    with backend("scan"):
        actual = _whole_network(memory, x, **options)
    for one, other in zip(actual, expected, strict=True):
        assert_all_close(one, other, TOLERANCE[dtype])


def test_checkpoints_keep_fewer_activations() -> None:
    kept = {}
    for every in (None, 2):
        memory = MultigridMemory(2, "0-1:4 0-1:4", checkpoint_every=every)
        sizes: list[int] = []
        with (
            torch.autograd.graph.saved_tensors_hooks(
                lambda t, sizes=sizes: sizes.append(t.nbytes) or t,  # type: ignore[misc]
                lambda t: t,
            ),
            backend("scan"),
        ):
            memory(torch.randn(16, 1, 2, 3, 3))
        kept[every] = sum(sizes)
    assert kept[2] < kept[None] / 4


def test_a_checkpoint_is_computed_again_the_way_it_was_computed_first() -> None:
    memory = MultigridMemory(2, "0-1:2", checkpoint_every=2, dtype=torch.float64)
    x = torch.randn(5, 1, 2, 3, 3, dtype=torch.float64)
    with backend("reference"):
        h, _ = memory(x)
    with backend("scan"):
        h[0].finest.sum().backward()


def test_the_backend_is_chosen_by_name_and_comes_back_after_a_block() -> None:
    memory = MultigridMemory(1, "0:1", dtype=torch.float64)
    x = torch.randn(2, 1, 1, 3, 3, dtype=torch.float64)
    with backend("reference"):
        assert "Recurrence" not in str(memory(x)[0][0][0].grad_fn)
        with backend("scan"):
            assert "Recurrence" in str(memory(x)[0][0][0].grad_fn)
        assert "Recurrence" not in str(memory(x)[0][0][0].grad_fn)
    with pytest.raises(UsageError, match="no backend 'abacus'; there are auto, native, scan"):
        set_backend("abacus")
    with pytest.raises(RuntimeError, match="broken"), backend("reference"):
        raise RuntimeError("broken")
    assert "Recurrence" in str(memory(x)[0][0][0].grad_fn)
