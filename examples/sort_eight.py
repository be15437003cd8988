"""Sorting eight items, in a training loop of one's own.

    python examples/sort_eight.py

The model is the library's, the optimiser PyTorch's; data and loop are written out here. Two minutes
on two cores, and nine bits in ten are right; `mgmem train sort-20` does this for twenty items.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from mgmem import EncoderDecoder

ITEMS, BATCH = 8, 16


def draw(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Items with priorities (time, batch, 2, 3, 3), and their bits in order (…, 1, 3, 3)."""
    bits = rng.integers(0, 2, (ITEMS, BATCH, 9)).astype(np.float32)
    priorities = rng.uniform(-1, 1, (ITEMS, BATCH, 1)).astype(np.float32)
    inputs = np.stack([bits, np.broadcast_to(4 * priorities, bits.shape)], axis=2)
    ordered = np.take_along_axis(bits, priorities.argsort(axis=0), axis=0)
    shape = (ITEMS, BATCH, -1, 3, 3)
    return torch.from_numpy(inputs.reshape(shape)), torch.from_numpy(ordered.reshape(shape))


def main() -> None:
    """Train, and say how many bits are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=1500, help="default: %(default)s")
    updates = parser.parse_args().updates
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = EncoderDecoder(2, "0-1:4 0-1:4 0-2:4 0-2:4 0-3:8", "0-2:16 0-2:16 0-1:16 0-1:16 0:1")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, max(2, updates))
    loss_of, wrong = nn.BCEWithLogitsLoss(), []
    for update in range(1, updates + 1):
        inputs, targets = draw(rng)
        # Empty queries: the decoder knows what to do with its memory.
        (answers,), _ = model(inputs, queries=[torch.zeros_like(inputs)])
        loss = loss_of(answers, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        wrong.append(((answers > 0) != (targets > 0.5)).float().mean().item())
        if update % 100 == 0 or update == updates:
            print(f"update {update:,}/{updates:,}  wrong bits {np.mean(wrong[-100:]):.3f}")


if __name__ == "__main__":
    main()
