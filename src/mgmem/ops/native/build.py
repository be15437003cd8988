"""Compile the kernels on first use, with this machine's own compiler and for its own processor.

The library's name is made of the sources, the flags, the compiler and the processor, so it is made
once and never stale; ``cache.py`` keeps it. ``CXX`` names another compiler.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from mgmem.ops.native import cache
from mgmem.ops.native.cache import BuildError

_log = logging.getLogger("mgmem.native")
_SOURCES = Path(__file__).parent
_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    "-fno-tree-slp-vectorize",  # vectors are written out; gcc 12 once got a row of 12 wrong without
    *("-fPIC", "-shared", "-pthread"),
)
_TIMEOUT = 300.0
"""Seconds that all attempts may take together; a busy machine needs minutes for one."""


def library_path() -> Path:
    """The compiled library, made if there is none yet that can be trusted. Raises BuildError."""
    compiler = _compiler()
    directory, name = cache.directory(), f"kernels-{_fingerprint(compiler)}"
    try:
        kept = cache.find(directory, name)
        if kept is not None:
            return kept
        _log.info("compiling the native kernels with %s into %s", compiler[0], directory)
        with tempfile.TemporaryDirectory(prefix="compiling-", dir=directory) as room:
            made = Path(room) / "kernels.so"
            _compile(compiler, made)
            return cache.keep(made, directory, name)
    except OSError as error:
        raise BuildError(f"cannot write to {directory}: {error}") from error


def _compiler() -> list[str]:
    """The compiler's command, from CXX or the usual names."""
    if chosen := os.environ.get("CXX"):
        try:
            command = shlex.split(chosen)
        except ValueError:
            command = []
        if command and shutil.which(command[0]):
            return command
        raise BuildError(f"CXX is {chosen!r}, which is not a command here")
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C++ compiler (c++, g++ or clang++) found")


def _sources() -> list[Path]:
    return sorted([*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")])


def _fingerprint(compiler: list[str]) -> str:
    """Sixteen hexadecimal digits of everything the library depends on."""
    digest = hashlib.sha256()
    for part in (*compiler, *_FLAGS, platform.machine(), _processor()):
        digest.update(os.fsencode(part) + b"\0")
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """The processor's model and features: home directories are shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(compiler: list[str], target: Path) -> None:
    """Compile, for this very processor if the compiler knows how."""
    deadline = time.monotonic() + _TIMEOUT
    complaint = ""
    for tuning in (("-march=native",), ("-mcpu=native",), ()):
        command = [*compiler, *_FLAGS, *tuning, str(_SOURCES / "kernels.cpp"), "-o", str(target)]
        failed = _run(command, deadline - time.monotonic())
        if failed is None and target.is_file() and target.stat().st_size:
            return
        complaint = complaint or failed or "it wrote nothing"
    raise BuildError(f"{compiler[0]} failed: {complaint}")


def _run(command: list[str], seconds: float) -> str | None:
    """None, or a failed command's first words; one that takes too long ends with its children."""
    # What it says goes to a file: a pipe would stay open as long as any child holds it.
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildError(f"{command[0]} did not run: {error}") from error
        try:
            code = process.wait(max(0.0, seconds))
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                took = f"{command[0]} took more than {_TIMEOUT:.0f} seconds"
                raise BuildError(took) from None
            raise
        said.seek(0)
        words = said.read(10_000).decode(errors="replace").strip()
    return None if code == 0 else (words or "no message").splitlines()[0]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
