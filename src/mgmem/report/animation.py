"""Episodes as animations: GIF through Pillow, MP4 where ffmpeg is installed."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError
from mgmem.report.memory import History
from mgmem.report.memory_figure import MomentFigure
from mgmem.report.style import write_file
from mgmem.report.walk_figure import WalkFigure

try:
    from PIL import Image
except ImportError as error:
    raise UsageError(
        f"animations need Pillow ({error}): run `pip install mgmem[figures]`"
    ) from None

Frame = npt.NDArray[np.uint8]

_COLORS = 255
_LAST_FRAME_SECONDS = 2.0


def animate(history: History, path: Path, *, dpi: int = 84, rate: float = 8.0) -> Path:
    """Write all moments of a history, so many a second, as the suffix says: .gif or .mp4."""
    return save_animation(moment_frames(history, dpi), path, rate)


def moment_frames(history: History, dpi: int) -> Iterator[Frame]:
    """A picture of every moment: (height, width, 3) each."""
    read = history.moments[0].probed is not None
    picture = WalkFigure(history) if read else MomentFigure(history, 0)
    for index in range(len(history.moments)):
        picture.show(index)
        yield picture.pixels(dpi)


def save_animation(frames: Iterable[Frame], path: Path, rate: float = 8.0) -> Path:
    """Write (height, width, 3) frames whole or not at all; they stop for a while at the last."""
    kind = path.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise UsageError(f"{path}: an animation is written as .gif or .mp4; name it so")
    if not 0 < rate <= 50:
        raise UsageError(f"{rate} frames a second: give more than 0 and at most 50")
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise UsageError(f"{path}: an animation needs at least one frame")
    if kind == ".gif":
        return write_file(path, _gif(first, iterator, rate))
    return _mp4(first, iterator, path, rate)


def ffmpeg() -> str | None:
    """Where ffmpeg is, or None."""
    return shutil.which("ffmpeg")


def _gif(first: Frame, others: Iterator[Frame], rate: float) -> bytes:
    raw = [first, *others]
    # One palette for all, so that what does not change stays the same to the last pixel and
    # is not stored again. The first, a middle and the last frame show every colour.
    both = Image.fromarray(np.concatenate([raw[0], raw[len(raw) // 2], raw[-1]]))
    palette = both.quantize(_COLORS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    images = [Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in raw]
    durations = [round(1000 / rate)] * len(images)
    durations[-1] = round(1000 * _LAST_FRAME_SECONDS)
    buffer = io.BytesIO()
    images[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        optimize=False,
    )
    return buffer.getvalue()


def _mp4(first: Frame, others: Iterator[Frame], path: Path, rate: float) -> Path:
    program = ffmpeg()
    if program is None:
        raise UsageError(f"{path}: MP4 needs ffmpeg, which is not installed; .gif does without")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} can not be written ({error.strerror}): give another") from None
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
    height, width, _ = first.shape
    command = [
        program, "-y", "-loglevel", "error",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(rate),
        "-i", "-", "-an", "-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p",
        "-movflags", "+faststart", str(temporary),
    ]  # fmt: skip
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        _, complaint = process.communicate(_stream(first, others, rate))
        if process.returncode:
            text = complaint.decode(errors="replace").strip().splitlines()
            raise UsageError(f"{path}: ffmpeg failed ({text[-1] if text else 'without a word'})")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _stream(first: Frame, others: Iterator[Frame], rate: float) -> bytes:
    frames = [first, *others]
    frames += [frames[-1]] * round(_LAST_FRAME_SECONDS * rate)
    return b"".join(frame.tobytes() for frame in frames)
