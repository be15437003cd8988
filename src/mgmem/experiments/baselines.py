"""The systems that the paper compares with, and those a user of today would try first."""

from __future__ import annotations

from collections.abc import Callable

from mgmem.baselines.core import SequenceCore
from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel, flat_input_size
from mgmem.baselines.lstm import PlainLSTM
from mgmem.baselines.single_scale import single_scale
from mgmem.baselines.transformer import CausalTransformer
from mgmem.experiments.multigrid import Builder
from mgmem.model import Model
from mgmem.nn import MultigridMemory, ReadWrite
from mgmem.spec import LayerSpec
from mgmem.tasks.base import Task


def one_scale(spec: str, tail: str, variant: str, channels: int) -> Builder:
    """A reader-writer without scales; the input goes to the grid of its first layer.

    The ablation's first grid is one level up from the input and reads it upsampled, as in the
    multigrid network; the conv-LSTMs live on the finest grid only, so what they see is resized.
    """
    memory_spec = single_scale(spec, variant)
    finest = memory_spec[-1].highest
    tail_spec = single_scale(tail, variant, finest)

    def build(task: Task) -> Model:
        start = 0 if variant == "ablated" else finest
        memory = MultigridMemory(LayerSpec(start, start, channels), memory_spec)
        reader = memory.reader(tail=tail_spec)
        return ReadWrite(memory, [reader], fit="as is" if variant == "ablated" else "resize")

    return build


def flat(core: Callable[[int, Task], SequenceCore]) -> Builder:
    """A flat sequence core (made for an input size) as a model of a task."""

    def build(task: Task) -> Model:
        shapes = task.shapes
        size = flat_input_size(shapes.input, shapes.queries)
        return FlatModel(
            core(size, task),
            input_shape=shapes.input,
            query_shapes=shapes.queries,
            answer_shapes=shapes.answers,
            reads=task.reads,
        )

    return build


def dnc(hidden: int, slots: int = 500, width: int = 16) -> Builder:
    """The DNC: 4 read heads, 1 write head, LSTM controller of ``hidden`` units."""
    return flat(lambda size, task: DNC(size, hidden, slots=slots, width=width))


def plain_lstm(hidden: int, layers: int = 1) -> Builder:
    """An LSTM and a linear layer."""
    return flat(lambda size, task: PlainLSTM(size, hidden, layers=layers))


def transformer(width: int, layers: int, heads: int = 4) -> Builder:
    """A causal transformer that sees the whole episode so far."""

    def core(size: int, task: Task) -> SequenceCore:
        # "after" tasks go on for their queries once the inputs have ended.
        steps = task.episode_length * (2 if task.reads == "after" else 1)
        return CausalTransformer(size, width, layers=layers, heads=heads, max_history=steps)

    return flat(core)
