"""What a run tells: a bar on a terminal, plain lines elsewhere; JSON lines and TensorBoard."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@dataclass
class Report:
    """The numbers of a moment of training."""

    update: int
    updates: int
    steps: int
    loss: float
    metric: str = ""
    speed: float = 0.0
    horizon: int | None = None

    def line(self) -> str:
        """One plain line."""
        growth = "" if self.horizon is None else f"  horizon {self.horizon}"
        left = (self.updates - self.update) / self.speed if self.speed else float("inf")
        return (
            f"update {self.update:,}/{self.updates:,}  steps {self.steps:,}  "
            f"loss {self.loss:.4f}  {self.metric}{growth}  "
            f"{self.speed:.2f} updates/s  {_duration(left)} left"
        )


class Reporter:
    """Shows progress and writes ``log.jsonl`` and, if installed, TensorBoard events."""

    _seconds_between_lines = 10.0

    def __init__(self, folder: Path, name: str, updates: int, quiet: bool = False) -> None:
        self._quiet = quiet
        self._log = open(folder / "log.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        self._events = _tensorboard(folder / "tensorboard")
        self._console = Console(file=sys.stderr)
        self._last_line = 0.0
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
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

    def record(self, update: int, steps: int, values: dict[str, float]) -> None:
        """Keep values in the log."""
        entry: dict[str, Any] = {"update": update, "steps": steps, **values}
        self._log.write(json.dumps(entry) + "\n")
        self._log.flush()
        if self._events is not None:
            for key, value in values.items():
                self._events.add_scalar(key, value, update)

    def say(self, text: str) -> None:
        """Print one line."""
        if not self._quiet:
            self._console.print(text, highlight=False)

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
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
