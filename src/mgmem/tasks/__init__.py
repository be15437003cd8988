"""What is learned: tasks that make batches and judge answers, and never see a model."""

from mgmem.tasks.babi import Babi
from mgmem.tasks.base import Batch, Episodes, Estimate, Metric, Reads, Score, Shapes, Task
from mgmem.tasks.mapping import Mapping, MappingEpisodes
from mgmem.tasks.maze import make_mazes
from mgmem.tasks.mnist import MnistRecall, MnistSort
from mgmem.tasks.recall import AssociativeRecall
from mgmem.tasks.scores import BitErrorScore, ClassErrorScore, PixelScore
from mgmem.tasks.seeds import SeedStream, Split
from mgmem.tasks.sequence import SequenceEpisodes
from mgmem.tasks.sort import PrioritySort

__all__ = [
    "AssociativeRecall",
    "Babi",
    "Batch",
    "BitErrorScore",
    "ClassErrorScore",
    "Episodes",
    "Estimate",
    "Mapping",
    "MappingEpisodes",
    "Metric",
    "MnistRecall",
    "MnistSort",
    "PixelScore",
    "PrioritySort",
    "Reads",
    "Score",
    "SeedStream",
    "SequenceEpisodes",
    "Shapes",
    "Split",
    "Task",
    "make_mazes",
]
