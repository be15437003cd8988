"""How long OpenMP's threads wait for their next piece of work before they sleep.

Left alone, libgomp lets them spin for some milliseconds. On idle cores that is right; beside a busy
process each of these milliseconds is taken from somebody who has work, this process included. One
and a half bridge the gaps between layers. libgomp reads its setting once, when PyTorch loads it, so
this module is imported before PyTorch is; where PyTorch came first, or the user has chosen
(``OMP_WAIT_POLICY``, ``GOMP_SPINCOUNT``), nothing is changed. Child processes do not inherit it.
"""

from __future__ import annotations

import importlib
import os
import sys

_SPINS = "60000"
_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def load_torch() -> None:
    """Import PyTorch with OpenMP threads that sleep when there is nothing to do."""
    if "torch" in sys.modules or any(name in os.environ for name in _SETTINGS):
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        importlib.import_module("torch")
    finally:
        del os.environ["GOMP_SPINCOUNT"]


load_torch()
