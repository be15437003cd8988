"""Exploration: a maze as a gymnasium environment, agents that walk it, and how they learn.

Importing this registers ``mgmem/Maze-v0``, for ``gymnasium.make`` and ``gymnasium.make_vec``.
"""

from mgmem.errors import UsageError

try:
    import gymnasium
except ImportError as error:
    raise UsageError(
        f"exploration needs gymnasium ({error}): run `pip install mgmem[rl]`"
    ) from None

from mgmem.rl.env import MazeEnv
from mgmem.rl.vector import MazeVectorEnv

__all__ = ["MazeEnv", "MazeVectorEnv"]

gymnasium.register(
    "mgmem/Maze-v0",
    entry_point="mgmem.rl.env:MazeEnv",
    vector_entry_point="mgmem.rl.vector:MazeVectorEnv",
)
