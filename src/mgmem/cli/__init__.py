"""The command line: ``mgmem list | train | evaluate | ...``; a dataclass per command."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

from mgmem.errors import UsageError
from mgmem.ops import chosen_backend

_COMMANDS = {
    "demo": "evaluate a shipped memory on fresh mazes and draw what it remembers",
    "list": "every experiment: parameters, memory, the paper's figure, ours, weights",
    "train": "train an experiment; goes on where an earlier run stopped",
    "evaluate": "score an experiment, a run folder or a weights file on fresh episodes",
    "describe": "draw an experiment's network, or a mesh given as text: layers, cells, parameters",
    "ask": "tell a story, ask about it, get the answer and the likeliest words",
    "play": "open a page in which a memory, or an explorer, walks through mazes and is asked",
    "show": "draw what a trained memory remembers, as a picture and an animation",
    "explore": "evaluate, show and time agents that map while they decide where to go",
    "report": "tables and learning curves out of results/",
    "bench": "measure speed: training, one step, scaling with memory",
    "export": "write the step function as a torch.export program or ONNX",
}

# A module called ``list`` would hide the builtin inside this package.
_MODULES = {"list": "listing"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; bad input is one message and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if arguments[0] == "--version":
        from mgmem import __version__

        print(f"mgmem {__version__}")
        return 0
    for stream in (sys.stdout, sys.stderr):  # names of files may be no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _run(arguments[0], arguments[1:])
    except UsageError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # a full disk, a folder that may not be written
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            return 141
        name = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{name}{error.strerror or error}")
    except UnicodeError as error:
        return _refuse(f"what was given is no text: {error}")
    except (MemoryError, OverflowError, RuntimeError) as error:
        # PyTorch has no error of its own for what is too large for this machine.
        if isinstance(error, RuntimeError) and not any(w in str(error) for w in _TOO_LARGE):
            raise
        return _refuse("not enough memory for this: ask for less, such as a smaller batch")
    return 0


_TOO_LARGE = ("can't allocate memory", "out of memory", "overflow", "Overflow")


def _run(name: str, rest: list[str]) -> None:
    if name not in _COMMANDS:
        raise UsageError(f"no command {name[:100]!r}; there are {', '.join(_COMMANDS)}")
    chosen_backend()  # MGMEM_BACKEND may name none
    module = importlib.import_module(f"mgmem.cli.{_MODULES.get(name, name)}")
    module.run(rest)


def _refuse(message: str) -> int:
    print(f"mgmem: {message}", file=sys.stderr)
    return 2


def _usage() -> str:
    width = max(map(len, _COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items())
    return f"usage: mgmem COMMAND ...\n\n{rows}\n\n`mgmem COMMAND --help` explains a command."
