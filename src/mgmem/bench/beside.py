"""Training beside a busy neighbour: another process that wants the same cores."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mgmem.bench.measure import matrix_product, seconds_each
from mgmem.bench.workload import Workload, workload


def bench_beside(load: Workload, repeats: int) -> dict[str, float]:
    """Updates per second alone, beside a looping matrix product, and of two trainings at once."""
    rates = {"alone": 1 / _seconds(load, repeats)}
    with _neighbour("product"):
        rates["beside_matrix_product"] = 1 / _seconds(load, repeats)
    with _neighbour(load.name, str(load.batch), str(load.queries)) as finished:
        ours = 1 / _seconds(load, repeats)
        rates["two_together"] = ours + finished()
    return rates


def _seconds(load: Workload, repeats: int) -> float:
    return seconds_each([load.run], repeats)[0]


@contextmanager
def _neighbour(*job: str) -> Iterator[Callable[[], float]]:
    """Another process with as many threads, at work; the call ends it and says how fast it was."""
    command = [sys.executable, "-m", "mgmem.bench.beside", str(torch.get_num_threads()), *job]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()  # it is warm

        def finished() -> float:
            answer, _ = child.communicate()  # closes its input
            return float(answer)

        try:
            yield finished
        finally:
            if child.poll() is None:
                child.terminate()


def _be_busy(threads: int, job: str, *numbers: str) -> None:
    """Work until standard input ends, then print how often a second it was done."""
    torch.set_num_threads(threads)
    run = matrix_product()[0] if job == "product" else workload(job, *map(int, numbers)).run
    run()
    print("ready", flush=True)
    listener = threading.Thread(target=sys.stdin.read, daemon=True)
    listener.start()
    start, times = time.perf_counter(), 0
    while listener.is_alive():
        run()
        times += 1
    print(times / (time.perf_counter() - start))


if __name__ == "__main__":
    _be_busy(int(sys.argv[1]), *sys.argv[2:])
