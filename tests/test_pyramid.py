"""The pyramid, and the moves between its levels."""

from __future__ import annotations

import pytest
import torch

from comparing import slow_neighbours
from mgmem import Pyramid
from mgmem.pyramid import downsample, gather, upsample


def _pyramid(lowest: int, levels: int, base: tuple[int, ...] = (3, 5)) -> Pyramid:
    shapes = [[side << level for side in base] for level in range(lowest, lowest + levels)]
    return Pyramid(lowest, tuple(torch.randn(2, 3, *shape) for shape in shapes))


def test_grids_are_found_by_level() -> None:
    pyramid = _pyramid(1, 3)
    assert list(pyramid.levels) == [1, 2, 3]
    assert len(pyramid) == 3
    assert pyramid[2] is pyramid.grids[1]
    assert pyramid.finest is pyramid[3]
    assert pyramid.get(0) is None
    assert pyramid.get(4) is None
    assert pyramid[-1] is pyramid[3]
    assert pyramid[-3] is pyramid[1]
    for level in (0, 4, -4):
        with pytest.raises(KeyError, match=rf"no level {level}; .*\[1, 2, 3\]"):
            pyramid[level]


def test_map_keeps_levels_and_join_puts_channels_side_by_side() -> None:
    one, two = _pyramid(1, 2), _pyramid(1, 2)
    assert torch.equal(one.map(torch.neg)[2], -one[2])
    joined = one.join(two, 2)
    assert torch.equal(joined[1][:, :3], one[1])
    assert torch.equal(joined[1][:, 3:], two[1])
    with pytest.raises(ValueError, match=r"\[1, 2\] and \[0, 1\]"):
        one.join(_pyramid(0, 2), 2)


def test_upsampling_repeats_and_downsampling_takes_the_largest() -> None:
    grid = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    fine = torch.tensor([[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]).float()
    assert torch.equal(upsample(grid[None]), fine[None, None])
    assert torch.equal(downsample(fine[None, None]), grid[None])
    line = torch.tensor([[[1.0, 5.0, 3.0, 2.0]]])
    assert torch.equal(downsample(line), torch.tensor([[[5.0, 3.0]]]))
    assert torch.equal(upsample(downsample(line)), torch.tensor([[[5.0, 5.0, 3.0, 3.0]]]))


@pytest.mark.parametrize("base", [(3, 5), (5,), (1, 1), (1,)])
@pytest.mark.parametrize("level", range(5))
def test_a_grid_reads_coarser_same_and_finer_in_this_order(
    base: tuple[int, ...], level: int
) -> None:
    pyramid = _pyramid(1, 3, base)
    expected = slow_neighbours(dict(zip(pyramid.levels, pyramid, strict=True)), level)
    assert torch.equal(gather(pyramid, level), expected)
