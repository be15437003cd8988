"""What a user builds with."""

from mgmem.nn.conv import MultigridCNN, MultigridConv
from mgmem.nn.encoder_decoder import EncoderDecoder
from mgmem.nn.lstm import MultigridConvLSTM
from mgmem.nn.memory import MultigridMemory
from mgmem.nn.read_write import ReadWrite
from mgmem.nn.reader import MultigridReader
from mgmem.nn.state import LayerState, MemoryState

__all__ = [
    "EncoderDecoder",
    "LayerState",
    "MemoryState",
    "MultigridCNN",
    "MultigridConv",
    "MultigridConvLSTM",
    "MultigridMemory",
    "MultigridReader",
    "ReadWrite",
]
