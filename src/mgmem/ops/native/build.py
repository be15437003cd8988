"""Compile the kernels on first use, with this machine's own compiler and for its own processor.

The library lies in the user's cache under a name made of the sources, the flags, the compiler
and the processor, so it is made once and never stale. ``MGMEM_CACHE`` names another directory,
``CXX`` another compiler.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

_log = logging.getLogger("mgmem.native")
_SOURCES = Path(__file__).parent
_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    "-fno-tree-slp-vectorize",  # vectors are written out; gcc 12 once got a row of 12 wrong without
    *("-fPIC", "-shared", "-pthread"),
)
_TIMEOUT = 300.0


class BuildError(Exception):
    """No library could be made; the message says why."""


def library_path() -> Path:
    """The compiled library, made if there is none yet. Raises BuildError."""
    compiler = _compiler()
    directory = _cache_directory()
    target = directory / f"kernels-{_fingerprint(compiler)}.so"
    if target.exists():
        return target
    _log.info("compiling the native kernels with %s into %s", compiler[0], target)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _compile(compiler, target)
    except OSError as error:
        raise BuildError(f"cannot write to {directory}: {error}") from error
    return target


def _cache_directory() -> Path:
    if chosen := os.environ.get("MGMEM_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mgmem"


def _compiler() -> list[str]:
    """The compiler's command, from CXX or the usual names."""
    if chosen := os.environ.get("CXX"):
        command = shlex.split(chosen)
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
        digest.update(part.encode() + b"\0")
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
    """Compile to a temporary file and rename it: whoever looks sees all of it or nothing."""
    handle, temporary = tempfile.mkstemp(prefix="kernels-", suffix=".tmp", dir=target.parent)
    os.close(handle)
    try:
        complaint = ""
        for tuning in (("-march=native",), ("-mcpu=native",), ()):
            command = [*compiler, *_FLAGS, *tuning, str(_SOURCES / "kernels.cpp"), "-o", temporary]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise BuildError(f"{compiler[0]} did not run: {error}") from error
            if done.returncode == 0:
                os.chmod(temporary, 0o755)
                os.replace(temporary, target)
                return
            complaint = complaint or (done.stderr.strip() or "no message").splitlines()[0]
        raise BuildError(f"{compiler[0]} failed: {complaint}")
    finally:
        Path(temporary).unlink(missing_ok=True)
