"""Training digits that are never twice the same: turned, scaled and shifted a little."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgmem.tasks.seeds import Keys, draw

DEGREES = 12.0
"""A digit is turned by up to so much, either way."""
SCALE = 0.1
"""It is made larger or smaller by up to this share."""
PIXELS = 2.0
"""It is shifted by up to so many pixels, down or up and right or left."""


def distorted(images: Tensor, keys: Keys) -> Tensor:
    """Images (L, B, 1, side, side), each turned, scaled and shifted by draws of its sequence.

    keys: (B,), those of the sequences; the same key gives the same distortions.
    """
    length, batch, _, side, _ = images.shape
    bits = draw(keys, "distortion", np.arange(4 * length)[:, None])
    chance = torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    turn, size, down, right = (2 * chance.float() - 1).view(4, length * batch)
    angle, zoom = turn * math.radians(DEGREES), 1 + size * SCALE
    sine, cosine, shift = angle.sin() * zoom, angle.cos() * zoom, 2 * PIXELS / side
    rows = [torch.stack([cosine, -sine, right * shift], 1)]
    rows += [torch.stack([sine, cosine, down * shift], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), [length * batch, 1, side, side], False)
    return F.grid_sample(images.flatten(0, 1), grid, align_corners=False).view_as(images)
