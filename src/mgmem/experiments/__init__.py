"""The paper's rows by name: task, model, training and the paper's figure."""

from mgmem.experiments.experiment import Experiment, PaperRow, count_parameters
from mgmem.experiments.registry import EXPERIMENTS, find

__all__ = ["EXPERIMENTS", "Experiment", "PaperRow", "count_parameters", "find"]
