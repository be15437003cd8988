"""The paper's multigrid networks, by their place in its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from mgmem.nn import EncoderDecoder, MultigridMemory, ReadWrite
from mgmem.nn.fit import Fit
from mgmem.tasks.base import Task

SMALL = "0-1:4 0-1:4 0-2:4 0-2:4 0-3:8"
LARGE = "0-1:4 0-1:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
LARGE_FOV9 = "0-2:4 0-2:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
DIGITS = "0-2:4 0-2:4 0-2:8 0-2:8 0-2:16"

SMALL_MAP_TAIL = "0-3:16 1-3:16 1-3:16 2-3:16 2-3:16 3:1"
SMALL_MAP48_TAIL = "0-3:16 1-4:16 1-4:16 2-4:16 2-4:16 3-4:16 3-4:16 4:1"
LARGE_MAP_TAIL = "1-4:16 1-4:16 2-4:16 2-4:16 3-4:16 3-4:16 4:1"
LARGE_QUERY9_TAIL = "1-4:24 1-4:24 2-4:24 2-4:24 3-4:24 3-4:24 3-4:16 4:1"
SMALL_VECTOR_TAIL = "0-3:16 0-2:16 0-2:16 0-1:16 0-1:16 0-1:16 0:1"
LARGE_VECTOR_TAIL = "0-3:16 0-3:16 0-2:16 0-2:16 0-1:16 0-1:16 0:1"
SORT_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:1"
DIGIT_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:10"
DIGIT_SORT_TAIL = "0-2:16 0-2:16 0-2:16 0-1:16 0-1:16 0:10"

Builder = Callable[[Task], nn.Module]


def reader_writer(
    spec: str,
    tails: Sequence[str],
    *,
    input: int | str,
    query: int | str | None = None,
    fit: Fit = "as is",
    query_fit: Fit | None = None,
) -> Builder:
    """A memory with one reader per tail, each answering on its tail's last grid."""

    def build(task: Task) -> nn.Module:
        memory = MultigridMemory(input, spec)
        readers = [memory.reader(query, tail=tail) for tail in tails]
        fits = [query_fit or fit] * len(readers)
        return ReadWrite(memory, readers, fit=fit, query_fits=fits)

    return build


def encoder_decoder(spec: str, tail: str, input: int) -> Builder:
    """An encoder and a decoder that starts from its memory."""
    return lambda task: EncoderDecoder(input, spec, tail)


def digit_reader(spec: str = DIGITS, tail: str = DIGIT_TAIL, norm: bool = True) -> Builder:
    """Images at three scales in, a class out."""

    def build(task: Task) -> nn.Module:
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
