import pytest
import torch

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel, flat_input_size, flat_output_size
from mgmem.baselines.lstm import PlainLSTM
from mgmem.baselines.transformer import CausalTransformer
from mgmem.errors import UsageError

T, B = 6, 2
SHAPES = {
    "input_shape": (2, 3, 3),
    "query_shapes": [(1, 3, 3), (2, 1, 1)],
    "answer_shapes": [(1, 4, 4), (5,)],
}
SIZE = 18 + 9 + 2 + 1
CORES = {
    "dnc": lambda: DNC(SIZE, 5, slots=6, width=3, read_heads=2),
    "lstm": lambda: PlainLSTM(SIZE, 5),
    "transformer": lambda: CausalTransformer(SIZE, 8, heads=2),
}


def build(name, reads):
    torch.manual_seed(0)
    return FlatModel(CORES[name](), reads=reads, **SHAPES).double()


def draw(count, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = randn(T, B, 2, 3, 3)
    return inputs, (randn(count, B, 1, 3, 3), randn(count, B, 2, 1, 1))


def test_sizes_of_the_mapping_task():
    assert flat_input_size((4, 3, 3), [(4, 3, 3)]) == 73
    assert flat_output_size([(1, 24, 24)]) == 576
    assert flat_output_size(SHAPES["answer_shapes"]) == 21


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize(("reads", "times"), [("during", [0, 2, 5]), ("after", [5, 5, 5])])
def test_answers_have_their_shapes_and_train_every_parameter(name, reads, times):
    model = build(name, reads)
    inputs, queries = draw(3)
    answers, state = model(inputs, queries=queries, times=torch.tensor(times))
    assert [tuple(a.shape) for a in answers] == [(3, B, 1, 4, 4), (3, B, 5)]
    sum(a.square().sum() for a in answers).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    assert not any(v.requires_grad for v in state.detach().tensors().values())


@pytest.mark.parametrize("name", CORES)
def test_queries_during_may_be_cut_into_chunks(name):
    model = build(name, "during")
    inputs, queries = draw(3)
    whole, _ = model(inputs, queries=queries, times=torch.tensor([1, 2, 5]))
    early, state = model(inputs[:3], queries=[q[:2] for q in queries], times=torch.tensor([1, 2]))
    state = model.state_from_tensors(state.tensors())
    late, _ = model(inputs[3:], state, queries=[q[2:] for q in queries], times=torch.tensor([2]))
    for reader in range(2):
        torch.testing.assert_close(torch.cat([early[reader], late[reader]]), whole[reader])


@pytest.mark.parametrize("name", CORES)
def test_observing_first_and_asking_after_may_be_cut(name):
    model = build(name, "after")
    inputs, queries = draw(2)
    whole, _ = model(inputs, queries=queries, times=torch.tensor([5, 5]))
    no_queries = [q[:0] for q in queries]
    nothing, state = model(inputs[:4], queries=no_queries, times=torch.zeros(0, dtype=torch.long))
    assert nothing[0].shape == (0, B, 1, 4, 4)
    late, _ = model(inputs[4:], state, queries=queries, times=torch.tensor([1, 1]))
    torch.testing.assert_close(late, whole)


def test_steps_during_hold_the_query_beside_its_observation():
    model = build("lstm", "during")
    inputs, queries = draw(2)
    x = model.steps(inputs, queries, torch.tensor([1, 4]))
    assert x.shape == (T, B, SIZE)
    torch.testing.assert_close(x[..., :18], inputs.flatten(2))
    torch.testing.assert_close(x[[1, 4], :, 18:27], queries[0].flatten(2))
    torch.testing.assert_close(x[[1, 4], :, 27:29], queries[1].flatten(2))
    assert x[:, 0, -1].tolist() == [0, 1, 0, 0, 1, 0]
    assert (x[[0, 2, 3, 5], :, 18:] == 0).all()


def test_steps_after_hold_the_queries_behind_the_observations():
    model = build("lstm", "after")
    inputs, queries = draw(2)
    x = model.steps(inputs, queries, torch.tensor([5, 5]))
    assert x.shape == (T + 2, B, SIZE)
    torch.testing.assert_close(x[:T, :, :18], inputs.flatten(2))
    assert (x[:T, :, 18:] == 0).all()
    assert (x[T:, :, :18] == 0).all()
    torch.testing.assert_close(x[T:, :, 18:27], queries[0].flatten(2))
    assert (x[T:, :, -1] == 1).all()


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("reads", ["during", "after"])
def test_reset_starts_a_sequence_afresh(name, reads):
    model = build(name, reads)
    inputs, queries = draw(1)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[3, 1] = True
    answers, _ = model(inputs, queries=queries, times=torch.tensor([5]), reset=reset)
    fresh, _ = model(inputs[3:], queries=queries, times=torch.tensor([2]))
    torch.testing.assert_close(answers[0][:, 1], fresh[0][:, 1])
    assert not torch.allclose(answers[0][:, 0], fresh[0][:, 0])


@pytest.mark.parametrize("name", CORES)
def test_being_asked_changes_what_a_flat_model_remembers(name):
    model = build(name, "during")
    inputs, queries = draw(1)
    _, asked = model(inputs, queries=queries, times=torch.tensor([2]))
    nothing = [q[:0] for q in queries]
    _, unasked = model(inputs, queries=nothing, times=torch.zeros(0, dtype=torch.long))
    key = next(iter(asked.tensors()))
    assert not torch.allclose(asked.tensors()[key], unasked.tensors()[key])


@pytest.mark.parametrize(
    ("reads", "times", "message"),
    [
        ("during", [2, 2], "at most one query per step"),
        ("during", [3, 1], "in the order of time"),
        ("during", [1, 6], r"times have to lie in 0\.\.5"),
        ("during", [-1, 2], r"times have to lie in 0\.\.5"),
        ("after", [4, 5], "every query comes after the last step, 5"),
    ],
)
def test_impossible_times_are_refused(reads, times, message):
    inputs, queries = draw(2)
    with pytest.raises(UsageError, match=message):
        build("lstm", reads)(inputs, queries=queries, times=torch.tensor(times))


def test_wrong_shapes_are_refused():
    model = build("lstm", "during")
    inputs, queries = draw(2)
    times = torch.tensor([0, 1])
    with pytest.raises(UsageError, match=r"\(time, batch, 2, 3, 3\), got \(6, 2, 2, 3, 2\)"):
        model(inputs[..., :2], queries=queries, times=times)
    with pytest.raises(UsageError, match="1 query tensors for 2 reader"):
        model(inputs, queries=queries[:1], times=times)
    with pytest.raises(UsageError, match="a query has to be"):
        model(inputs, queries=[q[:1] for q in queries], times=times)


def test_a_model_that_can_not_work_is_refused_when_built():
    with pytest.raises(UsageError, match=r"takes 7 numbers per step.*make 30"):
        FlatModel(PlainLSTM(7, 5), reads="during", **SHAPES)
    with pytest.raises(UsageError, match='"after" or "within", got \'before\''):
        FlatModel(PlainLSTM(SIZE, 5), reads="before", **SHAPES)
    shapes = {**SHAPES, "answer_shapes": [(5,)]}
    with pytest.raises(UsageError, match="2 query and 1 answer"):
        FlatModel(PlainLSTM(SIZE, 5), reads="during", **shapes)


def test_initial_state_is_what_none_stands_for():
    model = build("dnc", "during")
    inputs, queries = draw(1)
    times = torch.tensor([3])
    given, _ = model(inputs, model.initial_state(B), queries=queries, times=times)
    torch.testing.assert_close(given, model(inputs, queries=queries, times=times)[0])


def test_flat_dnc_counts_like_the_published_one():
    model = build("dnc", "during")
    count = DNC.count_parameters(
        SIZE, flat_output_size(SHAPES["answer_shapes"]), hidden=5, width=3, read_heads=2
    )
    assert sum(p.numel() for p in model.parameters()) == count


def test_a_query_without_numbers_may_be_asked_twice_at_a_step():
    # Sequences that are asked less often than others repeat their last place.
    shapes = {"input_shape": (4,), "query_shapes": [(0,)], "answer_shapes": [(3,)]}
    model = FlatModel(PlainLSTM(5, 6), reads="within", **shapes)
    inputs, queries = torch.randn(6, 2, 4), (torch.zeros(2, 2, 0),)
    (answers,), _ = model(inputs, queries=queries, times=torch.tensor([[1, 3], [4, 3]]))
    assert torch.equal(answers[0, 1], answers[1, 1])
    with pytest.raises(UsageError, match="in the order of time"):
        model(inputs, queries=queries, times=torch.tensor([[4, 3], [1, 3]]))
