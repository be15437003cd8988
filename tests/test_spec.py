"""The specification: read, checked and counted without building anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgmem import LayerSpec, MeshSpec, UsageError
from mgmem.spec import as_layer, as_mesh, conv_costs, cost_table, grid_shape, memory_costs


def test_text_and_dataclass_are_the_same_specification() -> None:
    mesh = MeshSpec((LayerSpec(0, 1, 4), LayerSpec(0, 2, 8), LayerSpec(2, 2, 1)))
    assert MeshSpec.parse("0-1:4 0-2:8 2:1") == mesh
    assert str(mesh) == "0-1:4 0-2:8 2:1"
    assert as_mesh(mesh) is mesh
    assert as_mesh("  0-1:4\n0-2:8\t2-2:1 ") == mesh


@st.composite
def meshes(draw: st.DrawFn) -> MeshSpec:
    layers = [LayerSpec(0, draw(st.integers(0, 4)), draw(st.integers(1, 32)))]
    for _ in range(draw(st.integers(0, 5))):
        lowest = draw(st.integers(max(layers[-1].lowest - 1, 0), layers[-1].highest + 1))
        highest = draw(st.integers(lowest, layers[-1].highest + 1))
        layers.append(LayerSpec(lowest, highest, draw(st.integers(1, 32))))
    return MeshSpec(tuple(layers))


@given(meshes())
def test_every_mesh_reads_back_from_its_text(mesh: MeshSpec) -> None:
    assert MeshSpec.parse(str(mesh)) == mesh


@pytest.mark.parametrize(
    ("text", "faulty", "why"),
    [
        ("0-1:4 0-3:8", "0-3:8", "level 3 is out of reach"),
        ("2:4 0:8 0:1", "0:8", "level 0 is out of reach"),
        ("0-1:4 0-1:0", "0-1:0", "0 channels"),
        ("0-1:4 2-1:4", "2-1:4", "reversed range"),
        ("0-1:4 banana 0:1", "banana", "not a layer"),
        ("0-1:4 0-1", "0-1", "not a layer"),
        ("0-1:-4", "0-1:-4", "not a layer"),
        ("0–1:4", "0–1:4", "not a layer"),
        ("0-1:4,0-2:8", "0-1:4,0-2:8", "not a layer"),
    ],
)
def test_an_error_underlines_the_faulty_token(text: str, faulty: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        MeshSpec.parse(text)
    message, shown, underline = str(raised.value).split("\n")
    assert why in message
    assert shown.strip() == text
    marked = shown[underline.index("^") : underline.rindex("^") + 1]
    assert marked == faulty


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_specification_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="empty specification"):
        MeshSpec.parse(text)
    with pytest.raises(UsageError, match="empty specification"):
        MeshSpec(())


def test_the_dataclass_is_checked_like_the_text() -> None:
    with pytest.raises(UsageError, match="start at 0"):
        LayerSpec(-1, 0, 4)
    with pytest.raises(UsageError, match="reversed range"):
        LayerSpec(2, 1, 4)
    with pytest.raises(UsageError, match="at least 1"):
        LayerSpec(0, 1, 0)
    with pytest.raises(UsageError, match=r"layer 2 \(3:1\): level 3 is out of reach"):
        MeshSpec((LayerSpec(0, 1, 4), LayerSpec(3, 3, 1)))


def test_the_first_layer_must_reach_the_input() -> None:
    MeshSpec.parse("0-1:4").check_input(as_layer(2))
    with pytest.raises(UsageError, match=r"level 2 is out of reach of the input \(0:2\)"):
        MeshSpec.parse("0-2:4").check_input(as_layer(2))


def test_an_input_is_a_channel_count_or_one_layer() -> None:
    assert as_layer(4) == as_layer("0:4") == as_layer(LayerSpec(0, 0, 4))
    assert as_layer("0-2:1") == LayerSpec(0, 2, 1)
    with pytest.raises(UsageError, match="one layer"):
        as_layer("0:1 0:2")
    with pytest.raises(UsageError, match="at least 1"):
        as_layer(0)


def test_sides_double_from_level_to_level() -> None:
    assert [grid_shape((3, 3), level) for level in range(5)] == [(n, n) for n in (3, 6, 12, 24, 48)]
    assert grid_shape((1,), 4) == (16,)
    assert grid_shape((5, 2), 1) == (10, 4)


LARGE = "0-1:4 0-1:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
SMALL = "0-1:4 0-1:4 0-2:4 0-2:4 0-3:8"


def test_counts_of_the_large_mapping_network() -> None:
    tail = "1-4:16 1-4:16 2-4:16 2-4:16 3-4:16 3-4:16 4:1"
    writer = memory_costs(LARGE, 4)
    reader = conv_costs(f"{LARGE} {tail}", 4, sees=as_mesh(LARGE))
    assert sum(layer.cells for layer in writer) == 76_968
    assert sum(layer.parameters for layer in writer) == 392_768
    assert sum(layer.parameters for layer in reader) == 257_457


def test_counts_of_one_layer_by_hand() -> None:
    (layer,) = memory_costs("0-1:2", 3, (3, 3), peephole="channel", norm=True)
    per_level = 4 * 2 * (3 + 2) * 9 + 4 * 2 + 3 * 2 + 2 * 2
    assert layer.parameters == 2 * per_level
    assert layer.cells == 2 * (9 + 36)
    assert layer.multiply_adds == 4 * 2 * (3 + 2) * 9 * (9 + 36)
    assert layer.grids == ((3, 3), (6, 6))
    (layer,) = memory_costs("0-1:2", 3, (4,), kernel=5, peephole="cell")
    assert layer.parameters == 2 * (4 * 2 * (3 + 2) * 5 + 4 * 2) + 3 * 2 * (4 + 8)
    (conv,) = conv_costs("0-1:2", 3, (3, 3), norm=True)
    assert conv.parameters == 2 * (2 * 3 * 9 + 3 * 2)
    assert conv.multiply_adds == 2 * 3 * 9 * (9 + 36)
    assert conv.cells == 0


def test_adding_cells_costs_no_parameters_with_peepholes_per_channel() -> None:
    small, large = (memory_costs(SMALL, 4, (n, n), peephole="channel") for n in (3, 12))
    assert [layer.parameters for layer in small] == [layer.parameters for layer in large]
    assert sum(layer.cells for layer in large) == 16 * sum(layer.cells for layer in small)


def test_the_table_shows_layers_grids_channels_cells_and_parameters() -> None:
    table = cost_table(memory_costs("0-1:4 0-2:8", 4), "the mesh").splitlines()
    assert table[0] == "the mesh"
    assert table[1].split()[:5] == ["layer", "grids", "channels", "cells", "parameters"]
    assert table[2].split()[:6] == ["1", "3x3", "6x6", "4", "180", "2,336"]
    assert table[3].split()[:7] == ["2", "3x3", "6x6", "12x12", "8", "1,512", "12,768"]
    assert table[4].split()[:3] == ["all", "1,692", "15,104"]
