"""Does the memory still know where things were, on walks that a policy chose?"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mgmem.model import ask
from mgmem.rl.coverage import Log
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.scores import PixelScore
from mgmem.training.evaluation import query_steps


@torch.no_grad()
def localize(
    model: nn.Module,
    task: Mapping,
    log: Log,
    *,
    queries: int = 13,
    batch: int = 32,
    chunk: int = 25,
) -> tuple[PixelScore, float]:
    """Ask a mapping model about walks as they were taken: its score, and its mean loss.

    model: called as every trainable model; task: of the walks' world, random motion. Queries come
    after ``queries`` steps, evenly spread and the last among them.
    """
    score, losses = task.new_score(), []
    for first in range(0, len(log.keys), batch):
        some = slice(first, first + batch)
        episodes = task.follow(log.keys[some], log.walls[some], log.path[:, some], first)
        asked = query_steps(episodes.length, queries)
        state = None
        for start in range(0, episodes.length, chunk):
            stop = min(start + chunk, episodes.length)
            times = asked[(asked >= start) & (asked < stop)] - start
            piece = episodes.batch(start, stop, times)
            answers, state = ask(model, piece, state)
            if len(times):
                score.add(answers, piece)
                losses.append(float(task.loss(answers, piece)))
    return score, float(np.mean(losses))
