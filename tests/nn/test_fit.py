"""Pictures of any size become inputs: resized, padded or unshuffled onto the grids."""

from __future__ import annotations

import pytest
import torch

from comparing import slow_pooling
from mgmem import Pyramid, UsageError
from mgmem.nn.fit import fitted
from mgmem.spec import as_layer


def test_as_is_changes_nothing() -> None:
    x = torch.randn(2, 1, 4, 3, 3)
    assert fitted(x, as_layer(4), (3, 3), "as is") is x


def test_resize_takes_the_nearest_pixel_on_every_level() -> None:
    x = torch.randn(2, 3, 1, 12, 12)
    pyramid = fitted(x, as_layer("0-2:1"), (3, 3), "resize")
    assert isinstance(pyramid, Pyramid)
    for level, stride in enumerate((4, 2, 1)):
        assert torch.equal(pyramid[level], x[..., ::stride, ::stride])


def test_pad_keeps_every_pixel_in_the_middle_of_the_finest_grid() -> None:
    x = torch.randn(2, 3, 1, 9, 10)
    pyramid = fitted(x, as_layer("1-2:1"), (3, 3), "pad")
    assert isinstance(pyramid, Pyramid)
    assert torch.equal(pyramid[2][..., 1:10, 1:11], x)
    assert float(pyramid[2].abs().sum()) == pytest.approx(float(x.abs().sum()), rel=1e-5)
    assert torch.equal(pyramid[1].flatten(0, 1), slow_pooling(pyramid[2].flatten(0, 1)))
    with pytest.raises(UsageError, match=r"\(13, 9\) is larger than the grid \(12, 12\)"):
        fitted(torch.randn(1, 1, 1, 13, 9), as_layer("1-2:1"), (3, 3), "pad")


def test_unshuffle_loses_nothing() -> None:
    x = torch.randn(2, 3, 1, 6, 6)
    grid = fitted(x, as_layer("0:4"), (3, 3), "unshuffle")
    assert isinstance(grid, torch.Tensor)
    assert grid.shape == (2, 3, 4, 3, 3)
    assert torch.equal(grid[..., 2, 1].sort().values, x[..., 0, 4:, 2:4].flatten(-2).sort().values)
    with pytest.raises(UsageError, match=r"\(7, 6\) can not be unshuffled onto \(3, 3\)"):
        fitted(torch.randn(1, 1, 1, 7, 6), as_layer("0:4"), (3, 3), "unshuffle")
