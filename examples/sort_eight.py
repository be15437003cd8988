"""Sorting eight items, in a training loop of one's own.

    python examples/sort_eight.py eight.safetensors

The model and the optimiser are the library's, data and loop are written out here: 80 seconds on two
cores, and one bit in twelve is wrong. The command that it prints at the end goes on from there to
twenty items; the shipped weights of ``sort-20`` began so.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mgmem.experiments import find
from mgmem.training.loop import Budget
from mgmem.training.optim import WeightAverage, build_optimizer
from mgmem.training.recipe import Recipe
from mgmem.training.weights import save_weights

ITEMS, SPREAD, UPDATES = 8, 4.0, 1500
RECIPE = Recipe(
    optimizer="muon",
    lr=3e-3,
    gate_rate=4.0,
    schedule="constant",
    batch=8,
    weight_decay=1.0,
    clip=0.1,
    average=0.995,
)


def draw(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Items with priorities (time, batch, 2, 3, 3), and their bits in order (…, 1, 3, 3)."""
    bits = rng.integers(0, 2, (ITEMS, RECIPE.batch, 9)).astype(np.float32)
    priorities = rng.uniform(-1, 1, (ITEMS, RECIPE.batch))[:, :, None]
    inputs = np.empty((ITEMS, RECIPE.batch, 2, 9), np.float32)
    inputs[:, :, 0] = bits
    inputs[:, :, 1] = SPREAD * priorities
    ordered = np.take_along_axis(bits, priorities.argsort(axis=0), axis=0)
    shape = (ITEMS, RECIPE.batch, -1, 3, 3)
    return torch.from_numpy(inputs.reshape(shape)), torch.from_numpy(ordered.reshape(shape))


def train(updates: int) -> tuple[dict[str, Tensor], float]:
    """Averaged weights after so many updates, and the seconds they took."""
    _, model = find("sort-20").build(seed=0)
    optimizer, average = build_optimizer(model, RECIPE), WeightAverage(model, RECIPE.average)
    rng, begin, recent = np.random.default_rng(1000), time.perf_counter(), []
    loss_of = nn.BCEWithLogitsLoss(reduction="none")
    for update in range(updates):
        inputs, targets = draw(rng)
        for group in optimizer.param_groups:
            group["lr"] = RECIPE.rate(update)
        # Empty queries: the decoder knows what to do with its memory.
        (answers,), _ = model(inputs, queries=[torch.zeros_like(inputs)])
        loss = loss_of(answers, targets).flatten(2).sum(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), RECIPE.clip)
        optimizer.step()
        average.update(model, update + 1)
        recent.append(loss.item())
        if (update + 1) % 100 == 0:
            print(f"update {update + 1:,}/{updates:,}  loss {np.mean(recent[-100:]):.3f}")
    return average.weights, time.perf_counter() - begin


def main() -> None:
    """Train, and write weights that ``mgmem train --start`` takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="file to write, such as eight.safetensors")
    parser.add_argument("--updates", type=int, default=UPDATES, help="default: %(default)s")
    options = parser.parse_args()
    if options.updates < 1 or not options.out.parent.is_dir():
        parser.error("give at least 1 update, and a file in a folder that exists")
    torch.set_num_threads(2)  # sums are taken in another order with more: other weights
    weights, seconds = train(options.updates)
    length = "" if options.updates == UPDATES else f" --updates {options.updates}"
    spent = Budget(
        updates=options.updates,
        steps=options.updates * ITEMS,
        seconds=round(seconds, 1),
        commands=[f"python examples/sort_eight.py {options.out.name}{length}"],
    )
    task = {"length": str(ITEMS), "spread": str(SPREAD)}
    about = {"experiment": "sort-20", "recipe": "fast", "seed": 0, "task": task}
    save_weights(options.out, weights, {**about, "trained": asdict(spent)})
    settings = f"--lr {RECIPE.lr} --gate-rate {RECIPE.gate_rate} --clip {RECIPE.clip}"
    print(f"go on: mgmem train sort-20 --start {options.out} --task spread={SPREAD} {settings}")


if __name__ == "__main__":
    main()
