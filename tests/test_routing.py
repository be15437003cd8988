"""Routing: what one cell's content can reach (appendix A of the paper)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgmem import MultigridCNN, Pyramid, UsageError
from mgmem.routing import Cell, proposition_1, reach
from mgmem.spec import MeshSpec, as_mesh, grid_shape

DEPTH = 7


def _full(depth: int, levels: int) -> str:
    return " ".join([f"0-{levels - 1}:1"] * depth)


def _square(shape: tuple[int, ...], side: int) -> np.ndarray:
    square = np.zeros(shape, bool)
    square[tuple(slice(0, side) for _ in shape)] = True
    return square


@pytest.mark.parametrize("dims", [1, 2])
def test_proposition_1_is_exact_for_every_layer_and_level_up_to_7(dims: int) -> None:
    """Not only is the claimed square reached: nothing outside it is. Base 8 holds every square."""
    base = (8,) * dims
    corner = reach(_full(DEPTH, DEPTH), Cell(1, 0, (0,) * dims), base)
    for m in range(1, DEPTH + 1):
        for n in range(1, m + 1):
            side = (m - n + 2) * 2 ** (n - 1) - 1
            assert side == proposition_1(m, n)
            assert side < grid_shape(base, n - 1)[0]
            assert np.array_equal(corner[m][n - 1], _square(grid_shape(base, n - 1), side))
        for n in range(m + 1, DEPTH + 1):
            assert not corner[m][n - 1].any()


@given(
    base=st.integers(1, 9),
    depth=st.integers(1, DEPTH),
    levels=st.integers(1, 5),
)
def test_proposition_1_holds_on_any_mesh_up_to_the_edge_of_the_grid(
    base: int, depth: int, levels: int
) -> None:
    corner = reach(_full(depth, levels), Cell(1, 0, (0, 0)), (base, base))
    for m in range(1, depth + 1):
        for n in range(1, levels + 1):
            expected = _square(grid_shape((base, base), n - 1), proposition_1(m, n))
            assert np.array_equal(corner[m][n - 1], expected)


def _measured(
    mesh: MeshSpec, source: Cell, base: tuple[int, ...], kernel: int
) -> Mapping[int, Mapping[int, np.ndarray]]:
    """The same, found by sending a signal through a real network with positive weights."""
    first = mesh[source.layer - 1]
    grids = {level: torch.zeros(1, 1, *grid_shape(base, level)) for level in first.levels}
    grids[source.level][(0, 0, *source.position)] = 1
    found = {source.layer: {level: grid[0, 0].numpy() > 0 for level, grid in grids.items()}}
    x = Pyramid(first.lowest, tuple(grids.values()))
    if source.layer == len(mesh):
        return found
    network = MultigridCNN(first, MeshSpec(mesh.layers[source.layer :]), base, kernel=kernel)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.fill_(0.0 if "bias" in name else 0.5)
        for number, layer in enumerate(network.layers, source.layer + 1):
            x = layer(x)
            found[number] = {
                level: grid[0, 0].numpy() > 0 for level, grid in zip(x.levels, x, strict=True)
            }
    return found


@st.composite
def _sources(draw: st.DrawFn) -> tuple[MeshSpec, Cell, tuple[int, ...]]:
    spec = draw(
        st.sampled_from(["0-1:1 0-2:1 1-3:1 2:1", "0-3:1 0-3:1 0-3:1 0-3:1", "2:1 1-2:1 0-3:1"])
    )
    mesh = as_mesh(spec)
    base = draw(st.sampled_from([(3, 3), (5, 2), (1, 4), (4,)]))
    layer = draw(st.integers(1, len(mesh)))
    level = draw(st.sampled_from(list(mesh[layer - 1].levels)))
    position = tuple(draw(st.integers(0, side - 1)) for side in grid_shape(base, level))
    return mesh, Cell(layer, level, position), base


@given(_sources(), st.sampled_from([1, 3, 5]))
def test_reach_is_what_a_signal_in_a_network_reaches(
    drawn: tuple[MeshSpec, Cell, tuple[int, ...]], kernel: int
) -> None:
    mesh, source, base = drawn
    reached = reach(mesh, source, base, kernel=kernel)
    for number, grids in _measured(mesh, source, base, kernel).items():
        assert list(grids) == list(reached[number])
        for level, grid in grids.items():
            assert np.array_equal(reached[number][level], grid)


def test_without_links_between_levels_it_spreads_by_one_cell_a_layer() -> None:
    source = Cell(1, 3, (25, 25))
    alone = reach(_full(6, 4), source, (8, 8), cross_scale=False)
    for number in alone.layers:
        radius = number - 1
        rows, columns = np.nonzero(alone[number][3])
        assert (rows.min(), rows.max()) == (25 - radius, 25 + radius)
        assert (columns.min(), columns.max()) == (25 - radius, 25 + radius)
        assert alone[number][3].sum() == (2 * radius + 1) ** 2
        assert not any(alone[number][level].any() for level in (0, 1, 2))


def test_multigrid_reaches_at_least_what_a_plain_network_does() -> None:
    source = Cell(1, 3, (25, 25))
    linked, alone = (reach(_full(6, 4), source, (8, 8), cross_scale=c) for c in (True, False))
    for number in linked.layers:
        for level in range(4):
            assert not (alone[number][level] & ~linked[number][level]).any()


@pytest.mark.parametrize("levels", [3, 4, 5, 6])
def test_depth_to_reach_everything_grows_with_the_logarithm_of_the_side(levels: int) -> None:
    """From corner to corner: two layers more per doubling, against twice the layers."""
    finest = levels - 1
    side = 3 * 2**finest
    whole = 2 * levels
    corner = reach(_full(whole, levels), Cell(1, finest, (0,)), (3,))
    shares = [corner.share(number, finest) for number in corner.layers]
    assert shares[-1] == 1
    assert shares[-2] < 1
    alone = reach(_full(side, levels), Cell(1, finest, (0,)), (3,), cross_scale=False)
    assert alone.share(side, finest) == 1
    assert alone.share(side - 1, finest) < 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Cell(0, 0, (0, 0)), "layer 0: this mesh has layers 1 to 2"),
        (Cell(3, 0, (0, 0)), "layer 3: this mesh has layers 1 to 2"),
        (Cell(1, 2, (0, 0)), r"level 2: layer 1 is 0-1:1, with levels 0 to 1"),
        (Cell(1, 1, (6, 0)), r"position \(6, 0\): level 1 is a grid of \(6, 6\)"),
        (Cell(1, 1, (-1, 0)), r"position \(-1, 0\): level 1 is a grid of \(6, 6\)"),
        (Cell(1, 1, (0,)), r"position \(0,\): level 1 is a grid of \(6, 6\)"),
    ],
)
def test_a_source_outside_the_mesh_is_refused(source: Cell, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reach("0-1:1 0-2:1", source)
