"""The command line: ``mgmem list | train | evaluate | ...``; a dataclass per command."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from mgmem.errors import UsageError

_COMMANDS = {
    "demo": "evaluate a shipped memory on fresh mazes and draw what it remembers",
    "list": "every experiment: parameters, memory, the paper's figure, ours, weights",
    "train": "train an experiment; goes on where an earlier run stopped",
    "evaluate": "score an experiment, a run folder or a weights file on fresh episodes",
    "describe": "draw a mesh given as text: layers, grids, cells, parameters",
    "show": "draw what a trained memory remembers, as a picture and an animation",
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
    try:
        name, rest = arguments[0], arguments[1:]
        if name not in _COMMANDS:
            raise UsageError(f"no command {name!r}; there are {', '.join(_COMMANDS)}")
        module = importlib.import_module(f"mgmem.cli.{_MODULES.get(name, name)}")
        module.run(rest)
    except UsageError as error:
        print(f"mgmem: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return 0


def _usage() -> str:
    width = max(map(len, _COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items())
    return f"usage: mgmem COMMAND ...\n\n{rows}\n\n`mgmem COMMAND --help` explains a command."
