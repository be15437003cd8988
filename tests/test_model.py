"""Every model takes every batch: sequences of different lengths, asked at steps of their own."""

import pytest
import torch

from mgmem.baselines.flat import FlatModel, flat_input_size
from mgmem.baselines.lstm import PlainLSTM
from mgmem.errors import UsageError
from mgmem.model import Model, ask
from mgmem.nn import MultigridMemory, ReadWrite
from mgmem.tasks import Batch

LENGTHS = torch.tensor([6, 3, 5])
TIMES = torch.tensor([[1, 0, 2], [5, 2, 4]])


def multigrid():
    memory = MultigridMemory(2, "0-1:4 0-2:4")
    return ReadWrite(memory, [memory.reader(2, tail="1-2:4 2:1")])


def flat():
    shape = (2, 3, 3)
    core = PlainLSTM(flat_input_size(shape, [shape]), 8)
    return FlatModel(
        core, input_shape=shape, query_shapes=[shape], answer_shapes=[(4,)], reads="during"
    )


def batch(times=TIMES, lengths=LENGTHS):
    return Batch(
        inputs=torch.randn(6, 3, 2, 3, 3),
        reset=None,
        times=times,
        queries=(torch.randn(2, 3, 2, 3, 3),),
        targets=(torch.zeros(2, 3),),
        lengths=lengths,
    )


@pytest.mark.parametrize("make", [multigrid, flat])
def test_a_sequence_is_answered_as_if_it_were_alone_and_not_padded(make):
    model, whole = make().eval(), batch()
    assert isinstance(model, Model)
    (answers,), _ = ask(model, whole)
    for index, length in enumerate(LENGTHS.tolist()):
        alone = Batch(
            inputs=whole.inputs[:length, index : index + 1],
            reset=None,
            times=TIMES[:, index],
            queries=(whole.queries[0][:, index : index + 1],),
            targets=whole.targets,
        )
        (expected,), _ = ask(model, alone)
        torch.testing.assert_close(answers[:, index : index + 1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [multigrid, flat])
def test_the_same_steps_for_all_can_be_said_in_two_ways(make):
    model = make().eval()
    once = batch(torch.tensor([1, 4]), None)
    each = Batch(
        once.inputs, None, torch.tensor([[1, 1, 1], [4, 4, 4]]), once.queries, once.targets
    )
    torch.testing.assert_close(ask(model, once)[0], ask(model, each)[0])


def test_a_batch_moves_whole():
    moved = batch().to("meta")
    assert moved.inputs.is_meta
    assert moved.queries[0].is_meta
    assert moved.lengths.is_meta
    assert moved.reset is None


@pytest.mark.parametrize("make", [multigrid, flat])
def test_a_query_for_each_reader_is_asked_for(make):
    whole = batch()
    short = Batch(whole.inputs, None, TIMES, (), ())
    with pytest.raises(UsageError, match="0 query tensors for 1 reader"):
        ask(make(), short)
