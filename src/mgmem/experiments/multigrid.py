"""The paper's multigrid networks, by their place in its tables."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from mgmem.errors import UsageError
from mgmem.model import Model
from mgmem.nn import EncoderDecoder, MultigridMemory, ReadWrite
from mgmem.nn.fit import Fit
from mgmem.spec import LayerSpec
from mgmem.tasks.base import Task

SMALL = "0-1:4 0-1:4 0-2:4 0-2:4 0-3:8"
LARGE = "0-1:4 0-1:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
LARGE_FOV9 = "0-2:4 0-2:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
DIGITS = "0-2:4 0-2:4 0-2:8 0-2:8 0-2:16"

SMALL_MAP_TAIL = "0-3:16 1-3:16 1-3:16 2-3:16 2-3:16 3:1"
SMALL_MAP25_TAIL = "0-3:16 0-3:16 0-3:16 1-3:16 1-3:16 2-3:16 2-3:16 3:1"
LARGE_MAP_TAIL = "1-4:16 1-4:16 2-4:16 2-4:16 3-4:16 3-4:16 4:1"
LARGE_QUERY9_TAIL = "1-4:24 1-4:24 2-4:24 2-4:24 3-4:24 3-4:24 3-4:16 4:1"
SMALL_VECTOR_TAIL = "0-3:16 0-2:16 0-2:16 0-1:16 0-1:16 0-1:16 0:1"
LARGE_VECTOR_TAIL = "0-3:16 0-3:16 0-2:16 0-2:16 0-1:16 0-1:16 0:1"
SORT_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:1"
DIGIT_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:10"
DIGIT_SORT_TAIL = "0-2:16 0-2:16 0-2:16 0-1:16 0-1:16 0:10"

Builder = Callable[[Task], Model]


def reader_writer(spec: str, tail: str, *, input: int | str, fit: Fit = "as is") -> Builder:
    """A memory with one reader for each kind of query of the task, all with the same tail."""

    def build(task: Task) -> Model:
        memory = MultigridMemory(input, spec)
        expected = (memory.input.channels, *memory.base)
        if fit == "as is" and task.shapes.input != expected:
            raise UsageError(
                f"observations are {task.shapes.input}, this network's input is {expected}"
            )
        inputs = [_query_input(shape, memory, fit) for shape in task.shapes.queries]
        readers = [memory.reader(layer, tail=tail) for layer, _ in inputs]
        return ReadWrite(memory, readers, fit=fit, query_fits=[how for _, how in inputs])

    return build


def _query_input(
    shape: tuple[int, ...], memory: MultigridMemory, fit: Fit
) -> tuple[LayerSpec, Fit]:
    """A reader's input for queries (channels, *space), and how they get there.

    A query larger than the base grid, such as 9x9 on 3x3, becomes channels of its cells.
    """
    channels, *space = shape
    if fit != "as is" or tuple(space) == memory.base:
        return memory.input, fit
    if any(side % grid for side, grid in zip(space, memory.base, strict=True)):
        raise UsageError(f"queries of {tuple(space)} can not be laid onto a grid of {memory.base}")
    blocks = [side // grid for side, grid in zip(space, memory.base, strict=True)]
    return LayerSpec(0, 0, channels * math.prod(blocks)), "unshuffle"


def encoder_decoder(spec: str, tail: str, input: int) -> Builder:
    """An encoder and a decoder that starts from its memory."""
    return lambda task: EncoderDecoder(input, spec, tail)


def digit_reader(spec: str = DIGITS, tail: str = DIGIT_TAIL, norm: bool = True) -> Builder:
    """Images at three scales in, a class out."""

    def build(task: Task) -> Model:
        memory = MultigridMemory("0-2:1", spec, norm=norm)
        reader = memory.reader(tail=tail, final_relu=True, norm=norm)
        return ReadWrite(memory, [reader], [class_head()], fit="resize")

    return build


def digit_sorter(spec: str = DIGITS, tail: str = DIGIT_SORT_TAIL, norm: bool = True) -> Builder:
    """Images at three scales in, a sequence of classes out."""
    return lambda task: EncoderDecoder(
        "0-2:1", spec, tail, head=class_head(), fit="resize", norm=norm, final_relu=True
    )


def class_head() -> nn.Module:
    """(…, 10, 3, 3) to (…, 10) logits: a linear layer over the flattened grid."""
    return nn.Sequential(nn.Flatten(-3), nn.Linear(90, 10))
