"""Two checkouts of mgmem, training updates in turn: is the new one faster, and how much?

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


def work(experiment: str, batch: int, queries: int) -> None:
    """In a process of its own: an update for every line read, answered by its seconds."""
    import mgmem  # noqa: F401  (before PyTorch, as ``mgmem train`` does)
    from mgmem.experiments import find
    from mgmem.training.feed import make_feed
    from mgmem.training.optim import build_optimizer
    from mgmem.training.recipe import Recipe

    recipe = Recipe(batch=batch, groups=1, chunk=20, query_share=queries / 20)
    task, model = find(experiment).build()
    feed, optimizer = make_feed(task, 0, recipe), build_optimizer(model, recipe)
    for _ in sys.stdin:
        start = time.perf_counter()
        b = feed.next()
        answers, _ = model(b.inputs, None, queries=b.queries, times=b.times, reset=b.reset)
        optimizer.zero_grad(set_to_none=True)
        task.loss(answers, b).backward()
        optimizer.step()
        print(time.perf_counter() - start, flush=True)


class Worker:
    """A checkout's process."""

    def __init__(self, checkout: Path, row: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, __file__, "--work", row]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def update(self) -> float:
        """Seconds of one update."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """Let it go."""
        self._process.communicate()


def compare(old: Path, new: Path, row: str, repeats: int) -> dict[str, Any]:
    """Median seconds of an update of each, timed in turn."""
    workers = [Worker(old, row), Worker(new, row)]
    for worker in workers:
        worker.update()
    taken = [[worker.update() for worker in workers] for _ in range(repeats)]
    before, after = (statistics.median(column) for column in zip(*taken, strict=True))
    for worker in workers:
        worker.end()
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
