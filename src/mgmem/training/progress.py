"""What a run tells: a bar on a terminal, plain lines elsewhere; JSON lines and TensorBoard."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from mgmem.files import open_own


@dataclass
class Report:
    """The numbers of a moment of training."""

    stage: str
    update: int
    updates: int
    steps: int
    loss: float
    metric: str
    rate: float
    horizon: str
    """While episodes grow: how long they are, and how near the goal."""
    speed: float
    """Updates per second."""
    left: float
    """Seconds to the end, should all episodes be whole from now on."""

    def line(self) -> str:
        """One plain line."""
        parts = [
            f"update {self.update:,}/{self.updates:,}",
            self.stage,
            f"steps {self.steps:,}",
            f"loss {self.loss:.4f}",
            self.metric,
            self.horizon,
            f"rate {self.rate:.1e}",
            f"{self.speed:.2f} updates/s",
            f"{'at most ' if self.horizon else ''}{_duration(self.left)} left",
        ]
        return "  ".join(part for part in parts if part)


class Reporter:
    """Shows progress and writes ``log.jsonl`` and, if installed, TensorBoard events.

    Of several processes that train together one reports; the others have no folder: they keep and
    say nothing.
    """

    _seconds_between_lines = 10.0

    def __init__(self, folder: Path | None, name: str, updates: int, quiet: bool = False) -> None:
        self._quiet = quiet = quiet or folder is None
        self._log: IO[bytes] | None = None
        self._events: Any = None
        if folder is not None:
            self._log = open_own(folder / "log.jsonl", os.O_WRONLY | os.O_APPEND)
            self._events = _tensorboard(folder / "tensorboard")
        self._console = Console(file=sys.stderr)
        self._last_line = 0.0
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
            )
            self._bar.start()
            self._row = self._bar.add_task(name, total=updates, text="")

    def show(self, report: Report) -> None:
        """Show where the run is."""
        if self._bar is not None:
            text = report.line().split("  ", 1)[1]
            self._bar.update(self._row, completed=report.update, text=text)
        elif not self._quiet and time.monotonic() - self._last_line > self._seconds_between_lines:
            self._last_line = time.monotonic()
            print(report.line(), file=sys.stderr, flush=True)

    def log(self, entry: dict[str, Any]) -> None:
        """Keep an entry in the log."""
        if self._log is not None:
            self._log.write((json.dumps(entry) + "\n").encode())

    def record(self, update: int, values: dict[str, float]) -> None:
        """Keep values in the log and show them in TensorBoard."""
        self.log(values)
        if self._events is not None:
            for key, value in values.items():
                self._events.add_scalar(key, value, update)

    def say(self, text: str) -> None:
        """Print one line."""
        if not self._quiet:
            self._console.print(text, highlight=False, markup=False)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._log is not None:
            self._log.close()
        if self._events is not None:
            self._events.close()


def _tensorboard(folder: Path) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
