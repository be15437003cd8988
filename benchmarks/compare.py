"""Two checkouts of mgmem, training updates: is the new one faster, and how much?

    python benchmarks/compare.py OLD NEW mapping-25:8:4 mapping-15-small:32:4 --out compare.json

OLD and NEW are folders with ``src/mgmem``; a row is experiment:batch:queries of 20 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEPS = 20


def work(experiment: str, batch: int, queries: int) -> None:
    """In a process of its own: an update for every line read, answered by its seconds.

    Only what all checkouts have: the model by name, random sequences, PyTorch's optimiser.
    """
    import mgmem  # noqa: F401, I001  (before PyTorch, as ``mgmem train`` does: threads that wait)
    import torch
    from mgmem.experiments import find

    task, model = find(experiment).build()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs = torch.rand(STEPS, batch, *task.shapes.input)
    asked = tuple(torch.rand(queries, batch, *shape) for shape in task.shapes.queries)
    times = torch.linspace(0, STEPS - 1, queries).long()
    for _ in sys.stdin:
        start = time.perf_counter()
        answers, _ = model(inputs, None, queries=asked, times=times)
        optimizer.zero_grad(set_to_none=True)
        sum(answer.square().mean() for answer in answers).backward()
        optimizer.step()
        print(time.perf_counter() - start, flush=True)


def alone(checkout: Path, row: str, updates: int) -> list[float]:
    """Seconds of updates of a checkout, after a first one, in a process that has the machine."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, "--work", row]
    said = subprocess.run(
        command,
        env=environment,
        input="\n" * (updates + 1),
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(line) for line in said.stdout.split()[1:]]


def compare(old: Path, new: Path, row: str, repeats: int) -> dict[str, Any]:
    """Median seconds of an update of each; processes in turn, never two at once.

    Side by side the threads of one, waiting, would take time from the other.
    """
    taken: list[list[float]] = [[], []]
    for _ in range(2):
        for seconds, checkout in zip(taken, (old, new), strict=True):
            seconds += alone(checkout, row, repeats)
    before, after = map(statistics.median, taken)
    return {"row": row, "old_seconds": before, "new_seconds": after, "faster": before / after}


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("rows", nargs="*", default=["mapping-25:8:4", "mapping-15-small:8:4"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        name, batch, queries = options.work.split(":")
        return work(name, int(batch), int(queries))
    results = []
    for row in options.rows:
        results.append(compare(options.old, options.new, row, options.repeats))
        print(f"{row}: {results[-1]['faster']:.2f} times as fast", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
