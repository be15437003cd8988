import gc
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.autograd import gradcheck

from mgmem.baselines.core import hidden_for
from mgmem.baselines.dnc import DNC
from mgmem.errors import UsageError

SMALL = {"slots": 6, "width": 3, "read_heads": 2}


def test_output_is_a_linear_map_of_controller_and_reads():
    torch.manual_seed(0)
    dnc = DNC(4, 5, **SMALL, output_size=7, clip=None)
    features = DNC(4, 5, **SMALL, clip=None)
    features.load_state_dict(dnc.state_dict(), strict=False)
    x = torch.randn(8, 2, 4)
    y, _ = dnc(x)
    both, state = features(x)
    assert both.shape == (8, 2, 5 + 2 * 3)
    weight = torch.cat([dnc.to_output.weight, dnc.reads_to_output.weight], dim=1)
    torch.testing.assert_close(y, both @ weight.T + dnc.to_output.bias)
    torch.testing.assert_close(both[-1, :, 5:], state.memory.reads.flatten(1))


def test_controller_is_an_lstm_over_input_and_previous_reads():
    torch.manual_seed(0)
    dnc = DNC(4, 5, **SMALL, clip=None)
    cell = torch.nn.LSTMCell(4 + 6, 5)
    i, f, o, g = (slice(5 * k, 5 * k + 5) for k in range(4))
    order = torch.cat([torch.arange(20)[s] for s in (i, f, g, o)])  # LSTMCell keeps i, f, g, o
    with torch.no_grad():
        past = dnc.from_past.weight[order]
        cell.weight_ih.copy_(torch.cat([dnc.from_input.weight[order], past[:, 5:]], dim=1))
        cell.weight_hh.copy_(past[:, :5])
        cell.bias_ih.copy_(dnc.from_input.bias[order])
        cell.bias_hh.zero_()
    x = torch.randn(5, 2, 4)
    _, state = dnc(x[:4])
    _, after = dnc(x[4:], state)
    seen = torch.cat([x[4], state.memory.reads.flatten(1)], dim=1)
    expected = cell(seen, (state.hidden, state.cell))
    torch.testing.assert_close((after.hidden, after.cell), expected)


def test_gradients_pass_gradcheck_through_a_sequence():
    torch.manual_seed(1)
    dnc = DNC(2, 3, slots=3, width=2, read_heads=1, output_size=2).double()
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    # From an empty memory all usages are equal; a run-in gives every slot its own.
    _, state = dnc(torch.randn(5, 2, 2, dtype=torch.float64))
    state = state.detach()
    names, parameters = zip(*dnc.named_parameters(), strict=True)

    def run(x, *values):
        return torch.func.functional_call(dnc, dict(zip(names, values, strict=True)), (x, state))[0]

    assert gradcheck(run, (x, *parameters), atol=1e-4)


def test_backward_of_extreme_inputs_has_no_nan():
    torch.manual_seed(0)
    dnc = DNC(3, 8, slots=20, width=4, read_heads=2, output_size=2)
    with torch.no_grad():
        dnc.to_interface.weight *= 1000
    scales = torch.tensor([0.0, 1e-20, 1.0, 1e4, 1e10]).view(1, 5, 1)
    x = (scales * torch.randn(40, 5, 3)).requires_grad_()
    y, state = dnc(x)
    (y.square().mean() + sum(value.square().mean() for value in state.memory)).backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in dnc.parameters())


def test_clip_bounds_cell_and_output():
    dnc = DNC(3, 4, **SMALL, output_size=2, clip=0.25)
    y, state = dnc(100 * torch.randn(30, 3, 3))
    assert y.abs().max() <= 0.25
    assert state.cell.abs().max() == 0.25


def test_trace_is_the_memory_after_every_step():
    torch.manual_seed(0)
    dnc = DNC(4, 5, **SMALL)
    x = torch.randn(6, 2, 4)
    reset = torch.zeros(6, 2, dtype=torch.bool)
    reset[3, 1] = True
    trace = dnc.trace(x, reset=reset)
    assert trace.memory.shape == (6, 2, 6, 3)
    assert trace.write_weights.shape == (6, 2, 6)
    assert trace.read_weights.shape == (6, 2, 2, 6)
    assert not trace.memory.requires_grad
    for t in (2, 3, 5):
        _, state = dnc(x[: t + 1], reset=reset[: t + 1])
        torch.testing.assert_close(trace.memory[t], state.memory.memory)
        torch.testing.assert_close(trace.usage[t], state.memory.usage)
        torch.testing.assert_close(trace.write_weights[t], state.memory.write_weights)
        torch.testing.assert_close(trace.read_weights[t], state.memory.read_weights)
    with pytest.raises(UsageError, match="at least one step"):
        dnc.trace(x[:0])


def test_state_survives_a_file(tmp_path):
    torch.manual_seed(0)
    dnc = DNC(4, 5, **SMALL)
    _, state = dnc(torch.randn(6, 2, 4))
    save_file({k: v.contiguous() for k, v in state.detach().tensors().items()}, tmp_path / "s")
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(
        dnc(x, dnc.state_from_tensors(load_file(tmp_path / "s"))), dnc(x, state)
    )


def test_detached_state_frees_the_graph_and_the_link_matrices():
    dnc = DNC(4, 5, **SMALL)
    y, state = dnc(torch.randn(3, 2, 4))
    first_link = weakref.ref(state.memory.link)
    for _ in range(3):
        y, state = dnc(torch.randn(3, 2, 4), state.detach())
        y.sum().backward()
    assert first_link() is None


def test_tensors_alive_do_not_grow_with_calls():
    dnc = DNC(4, 5, **SMALL)

    def run(state):
        y, state = dnc(torch.randn(5, 2, 4), state)
        y.sum().backward()
        return state.detach()

    def alive():
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    state = run(run(None))
    before = alive()
    for _ in range(5):
        state = run(state)
    assert alive() <= before


def test_nothing_but_the_last_link_matrix_is_kept_without_gradients():
    dnc = DNC(4, 5, **SMALL)
    with torch.no_grad():
        _, state = dnc(torch.randn(20, 2, 4))
    gc.collect()
    links = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == (2, 6, 6)]
    assert len(links) == 1
    assert links[0] is state.memory.link


def test_wrong_sizes_are_refused_with_what_is_allowed():
    with pytest.raises(UsageError, match="slots=0"):
        DNC(4, 5, slots=0)
    with pytest.raises(UsageError, match=r"\(time, batch, 4\), got \(2, 3, 5\)"):
        DNC(4, 5, **SMALL)(torch.zeros(2, 3, 5))


# Rows of the paper's tables: parameters, numbers per step, numbers per answer, width of a slot.
ROWS = {
    "mapping-15": (750_000, 73, 576, 16),
    "mapping-25": (680_000, 73, 2304, 16),
    "sort-20": (760_000, 37, 9, 16),
    "recall-10": (760_000, 19, 9, 16),
    "mnist-sort": (1_050_000, 1569, 10, 16),
    "mnist-recall": (900_000, 1569, 10, 16),
    "babi": (890_000, 159, 159, 64),
}


@pytest.mark.parametrize("row", ROWS)
def test_controller_sizes_reach_the_papers_counts(row):
    parameters, inputs, outputs, width = ROWS[row]
    hidden = hidden_for(
        parameters, lambda h: DNC.count_parameters(inputs, outputs, hidden=h, width=width)
    )
    dnc = DNC(inputs, hidden, slots=4, width=width, output_size=outputs)
    count = sum(p.numel() for p in dnc.parameters())
    assert count == DNC.count_parameters(inputs, outputs, hidden=hidden, width=width)
    assert round(count / 1e6, 2) == parameters / 1e6
