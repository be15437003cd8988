"""The systems it is compared with, with the memory's own call signature."""

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel
from mgmem.baselines.lstm import PlainLSTM
from mgmem.baselines.single_scale import single_scale
from mgmem.baselines.transformer import CausalTransformer

__all__ = ["DNC", "CausalTransformer", "FlatModel", "PlainLSTM", "single_scale"]
