"""The map that a perfect memory would hold: all that has been seen so far, and where one was."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mgmem.rl.walks import Observation

VISITED, FREE, WALL = 0, 1, 2


class ExploredMap:
    """What B agents know of their worlds, on grids centred on their starts.

    Made from observations alone. ``planes`` is (B, 3, grid, grid) bool: visited, seen to be free,
    seen to be wall.
    """

    def __init__(self, batch: int, grid: int) -> None:
        self.grid = grid
        self.planes: npt.NDArray[np.bool_] = np.zeros((batch, 3, grid, grid), np.bool_)

    def update(self, observation: Observation, fresh: npt.NDArray[np.bool_]) -> None:
        """Take in what is seen now; ``fresh`` (B,) agents have just started and know nothing.

        A world that fills the grid has its border outside: that is seen, but not on the map.
        """
        self.planes[fresh] = False
        view, rows, columns = observation["view"], *self.positions(observation)
        reach = np.arange(view.shape[1]) - view.shape[1] // 2
        agents = np.arange(len(view))
        seen_rows = np.broadcast_to((rows[:, None] + reach)[:, :, None], view.shape)
        seen_columns = np.broadcast_to((columns[:, None] + reach)[:, None, :], view.shape)
        inside = (np.minimum(seen_rows, seen_columns) >= 0) & (
            np.maximum(seen_rows, seen_columns) < self.grid
        )
        whose = np.nonzero(inside)[0]
        where, seen = (whose, seen_rows[inside], seen_columns[inside]), view[inside]
        self.planes[:, WALL][where] = seen
        self.planes[:, FREE][where] = seen == 0
        self.planes[agents, VISITED, rows, columns] = True

    def positions(self, observation: Observation) -> npt.NDArray[np.int64]:
        """Row and column of each agent on its grid: (2, B)."""
        return observation["place"].T.astype(np.int64) + self.grid // 2
