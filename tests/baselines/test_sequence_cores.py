"""What every flat core has to do: the same numbers however a sequence is cut, resets, files."""

from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file

from mgmem.baselines.core import hidden_for
from mgmem.baselines.dnc import DNC
from mgmem.baselines.lstm import PlainLSTM
from mgmem.baselines.transformer import CausalTransformer, TransformerState
from mgmem.errors import UsageError

T, B, F = 9, 3, 4
CORES = {
    "dnc": lambda: DNC(F, 5, slots=6, width=3, read_heads=2),
    "dnc-output": lambda: DNC(F, 5, slots=6, width=3, read_heads=2, output_size=7),
    "lstm": lambda: PlainLSTM(F, 5),
    "lstm-2": lambda: PlainLSTM(F, 5, layers=2),
    "transformer": lambda: CausalTransformer(F, 8, heads=2, max_history=20),
    "transformer-learned": lambda: CausalTransformer(
        F, 8, layers=3, heads=2, max_history=9, positions="learned"
    ),
}
COUNTS = {
    "dnc": lambda: DNC.count_parameters(F, hidden=5, width=3, read_heads=2),
    "dnc-output": lambda: DNC.count_parameters(F, 7, hidden=5, width=3, read_heads=2),
    "lstm": lambda: PlainLSTM.count_parameters(F, hidden=5),
    "lstm-2": lambda: PlainLSTM.count_parameters(F, hidden=5, layers=2),
    "transformer": lambda: CausalTransformer.count_parameters(F, hidden=8),
    "transformer-learned": lambda: CausalTransformer.count_parameters(
        F, hidden=8, layers=3, learned_positions=9
    ),
}


@pytest.fixture(params=CORES)
def core(request):
    torch.manual_seed(0)
    return CORES[request.param]().double()


@pytest.fixture
def x():
    return torch.randn(T, B, F, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def reset():
    mask = torch.zeros(T, B, dtype=torch.bool)
    mask[0, 0] = mask[3, 1] = mask[4, 1] = mask[4, 2] = mask[8, 0] = True
    return mask


def run_in_chunks(core, x, reset, bounds):
    state, parts = None, []
    for start, stop in pairwise(bounds):
        y, state = core(x[start:stop], state, None if reset is None else reset[start:stop])
        parts.append(y)
    return torch.cat(parts), state


@pytest.mark.parametrize("with_reset", [False, True])
@pytest.mark.parametrize("bounds", [range(T + 1), (0, 4, 9), (0, 1, 1, 8, 9)])
def test_steps_and_chunks_give_the_numbers_of_the_whole(core, x, reset, with_reset, bounds):
    reset = reset if with_reset else None
    whole, last = core(x, None, reset)
    assert whole.shape == (T, B, core.output_size)
    cut, last_cut = run_in_chunks(core, x, reset, list(bounds))
    torch.testing.assert_close(cut, whole)
    for name, value in last.tensors().items():
        torch.testing.assert_close(last_cut.tensors()[name], value)


def test_step_is_a_sequence_of_one(core, x):
    state = core.initial_state(B)
    for t in range(T):
        y, state = core.step(x[t], state)
    torch.testing.assert_close(y, core(x)[0][-1])


def test_gradients_do_not_depend_on_the_cut(core, x):
    def gradients(bounds):
        core.zero_grad()
        y, _ = run_in_chunks(core, x, None, bounds)
        y.square().sum().backward()
        return [p.grad.clone() for p in core.parameters()]

    torch.testing.assert_close(gradients([0, T]), gradients([0, 2, 3, T]))


def test_a_reset_sequence_is_a_fresh_one(core, x, reset):
    y, _ = core(x, None, reset)
    torch.testing.assert_close(y[3:4, 1], core(x[3:4, 1:2])[0][:, 0])
    torch.testing.assert_close(y[4:, 1], core(x[4:, 1:2])[0][:, 0])
    torch.testing.assert_close(y[4:, 2], core(x[4:, 2:3])[0][:, 0])
    torch.testing.assert_close(y[:8, 0], core(x[:8, 0:1])[0][:, 0])


@pytest.mark.parametrize("name", ["dnc", "lstm"])
def test_nothing_of_a_reset_sequence_survives_not_even_nan(name, x):
    core = CORES[name]().double()
    state = core(x)[1].tensors()
    broken = {field: torch.full_like(value, torch.nan) for field, value in state.items()}
    reset = torch.ones(1, B, dtype=torch.bool)
    y, _ = core(x[:1], core.state_from_tensors(broken), reset)
    torch.testing.assert_close(y, core(x[:1])[0])


def test_sequences_of_a_batch_do_not_touch_each_other(core, x):
    y, _ = core(x)
    for b in range(B):
        torch.testing.assert_close(core(x[:, b : b + 1])[0][:, 0], y[:, b])


def test_the_past_does_not_see_the_future(core, x):
    other = x.clone()
    other[5:] += 1
    torch.testing.assert_close(core(other)[0][:5], core(x)[0][:5])
    assert not torch.allclose(core(other)[0][5], core(x)[0][5])


def test_weights_and_state_survive_files(core, x, tmp_path, request):
    _, state = core(x[:5])
    save_file(core.state_dict(), tmp_path / "weights")
    tensors = {name: value.contiguous() for name, value in state.detach().tensors().items()}
    save_file(tensors, tmp_path / "state")
    torch.manual_seed(99)
    twin = CORES[request.node.callspec.params["core"]]().double()
    twin.load_state_dict(load_file(tmp_path / "weights"))
    restored = twin.state_from_tensors(load_file(tmp_path / "state"))
    torch.testing.assert_close(twin(x[5:], restored)[0], core(x[5:], state)[0])


def test_a_fresh_state_survives_files(core, x, tmp_path):
    save_file(core.initial_state(B).tensors(), tmp_path / "state")
    restored = core.state_from_tensors(load_file(tmp_path / "state"))
    torch.testing.assert_close(core(x, restored)[0], core(x)[0])


def test_a_state_of_another_model_is_refused(core):
    with pytest.raises(UsageError, match="another kind of model"):
        core.state_from_tensors({"nonsense": torch.zeros(1)})


def test_detach_cuts_the_graph(core, x):
    _, state = core(x)
    assert any(value.requires_grad for value in state.tensors().values())
    assert not any(value.requires_grad for value in state.detach().tensors().values())


def test_device_and_dtype_pass_through(core):
    assert core.initial_state(2).tensors()
    state = core.initial_state(2, device="meta", dtype=torch.float32)
    floats = [value for value in state.tensors().values() if value.is_floating_point()]
    assert {value.dtype for value in floats} == {torch.float32}
    assert {value.device.type for value in floats} == {"meta"}


@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm:UserWarning")
def test_exported_graph_gives_the_same_numbers(core, x):
    _, state = core(x[:5])
    state = state.detach()
    graph = torch.export.export(core, (x[5:], state)).module()
    torch.testing.assert_close(graph(x[5:], state)[0], core(x[5:], state)[0])


@pytest.mark.parametrize("name", CORES)
def test_counts_without_building_are_the_real_counts(name):
    assert COUNTS[name]() == sum(p.numel() for p in CORES[name]().parameters())


def test_wrong_input_or_reset_is_refused(core, x):
    with pytest.raises(UsageError, match=r"\(time, batch, 4\)"):
        core(x[..., :3])
    with pytest.raises(UsageError, match="reset has to be bool"):
        core(x, None, torch.zeros(T, B))
    with pytest.raises(UsageError, match="reset has to be bool"):
        core(x, None, torch.zeros(B, T, dtype=torch.bool))


def test_transformer_refuses_a_longer_history_than_it_was_built_for(x):
    core = CausalTransformer(F, 8, heads=2, max_history=12).double()
    _, state = core(x)
    with pytest.raises(UsageError, match=r"18 steps.*max_history=12"):
        core(x, state)
    reset = torch.zeros(T, B, dtype=torch.bool)
    reset[3] = True
    y, state = core(x, state, reset)
    assert y.shape == (T, B, 8)
    assert state.keys.shape[3] == T - 3, "steps before everybody's reset are let go"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden": 10, "heads": 4}, "multiple of 2 . heads = 8, got 10"),
        ({"hidden": 8, "positions": "none"}, 'positions has to be "rotary" or "learned"'),
        ({"hidden": 8, "max_history": 0}, "max_history=0"),
    ],
)
def test_transformer_refuses_impossible_sizes(arguments, message):
    with pytest.raises(UsageError, match=message):
        CausalTransformer(F, **arguments)


def test_rotary_attention_knows_only_distances(x):
    core = CausalTransformer(F, 8, layers=1, heads=2).double()
    past = torch.zeros(B, 1, 2, 500, 4, dtype=torch.float64)
    late = TransformerState(past, past, age=torch.full((B,), 500))
    at_start = core(x)[1].keys[:, 0]
    later = core(x, late)[1].keys[:, 0, :, 500:]
    assert not torch.allclose(later, at_start)
    products = at_start @ at_start.transpose(-1, -2)
    torch.testing.assert_close(later @ later.transpose(-1, -2), products)


def test_lstm_starts_with_open_forget_gates():
    core = PlainLSTM(F, 5, layers=2)
    for layer in range(2):
        assert (getattr(core.lstm, f"bias_ih_l{layer}")[5:10] == 1).all()
        assert (getattr(core.lstm, f"bias_hh_l{layer}") == 0).all()


def test_hidden_for_finds_the_nearest_size():
    assert hidden_for(1_000_000, lambda h: h * h) == 1000
    assert hidden_for(1_000_000, lambda h: h * h, multiple_of=40) == 1000
    with pytest.raises(UsageError, match="nearest is 992 with 984,064"):
        hidden_for(1_000_000, lambda h: h * h, multiple_of=16)
    with pytest.raises(UsageError, match=r"No hidden size gives 0\.10M"):
        hidden_for(100_000, lambda h: 500_000 + h)


def test_hidden_for_takes_the_nearest_size_when_steps_are_coarse():
    def count(hidden):
        return CausalTransformer.count_parameters(73, 576, hidden=hidden)

    hidden = hidden_for(750_000, count, multiple_of=8, digits=None)
    assert hidden % 8 == 0
    miss = abs(count(hidden) - 750_000)
    assert miss <= abs(count(hidden - 8) - 750_000)
    assert miss <= abs(count(hidden + 8) - 750_000)
