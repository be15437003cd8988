"""Built networks have exactly the parameters and cells that the specification counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mgmem import EncoderDecoder, MultigridCNN, MultigridMemory, ReadWrite, backend
from mgmem.spec import LayerCost, as_mesh, conv_costs, memory_costs

LARGE = "0-1:4 0-1:4 0-2:8 0-2:8 0-3:16 0-3:16 0-4:16"
LARGE_TAIL = "1-4:16 1-4:16 2-4:16 2-4:16 3-4:16 3-4:16 4:1"
SMALL = "0-1:4 0-1:4 0-2:4 0-2:4 0-3:8"
SMALL_TAIL = "0-3:16 1-3:16 1-3:16 2-3:16 2-3:16 3:1"
RECALL = "0-2:4 0-2:4 0-2:8 0-2:8 0-2:16"
RECALL_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:10"
SORT_TAIL = "0-2:16 0-2:16 0-1:16 0-1:16 0:1"


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def total(costs: list[LayerCost]) -> int:
    return sum(cost.parameters for cost in costs)


def _reading(
    input: int | str, spec: str, tail: str, norm: bool = False, head: nn.Module | None = None
) -> ReadWrite:
    memory = MultigridMemory(input, spec, norm=norm)
    reader = memory.reader(input, tail=tail, norm=norm, final_relu=norm)
    return ReadWrite(memory, [reader], [head or nn.Identity()])


def test_mapping_large() -> None:
    model = _reading(4, LARGE, LARGE_TAIL)
    assert parameters(model.memory) == 392_768
    assert parameters(model.readers) == 257_457
    assert parameters(model) == 650_225
    assert model.cells == 76_968


def test_mapping_small() -> None:
    model = _reading(4, SMALL, SMALL_TAIL)
    assert parameters(model) == 123_273
    assert model.cells == 7_992


@pytest.mark.parametrize(("norm", "expected"), [(False, 210_588), (True, 211_408)])
def test_mnist_recall(norm: bool, expected: int) -> None:
    model = _reading("0-2:1", RECALL, RECALL_TAIL, norm, nn.Linear(90, 10))
    assert parameters(model) == expected
    assert model.cells == 7_560


def test_priority_sort_rounds_to_012_million() -> None:
    # A bit pattern of nine and its priority, each over the 3x3 grid.
    model = EncoderDecoder(2, SMALL, SORT_TAIL)
    assert parameters(model) == 115_073
    assert f"{parameters(model) / 1e6:.2f}" == "0.12"
    assert model.cells == 7_992


def test_mnist_sort_rounds_to_029_million() -> None:
    # The tail of MNIST recall with one more layer on all three levels.
    model = EncoderDecoder("0-2:1", RECALL, "0-2:16 " + RECALL_TAIL, head=nn.Linear(90, 10))
    assert parameters(model) == 286_920
    assert f"{parameters(model) / 1e6:.2f}" == "0.29"
    assert model.cells == 7_560


@pytest.mark.parametrize("base", [(3, 3), (2,), (1, 4)])
@pytest.mark.parametrize("peephole", ["none", "channel", "cell"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_the_specification_counts_what_is_built(
    base: tuple[int, ...], peephole: str, norm: bool, kernel: int
) -> None:
    spec, tail = "0-1:2 0-2:3 1-2:4", "0-2:2 1:1"
    options = {"kernel": kernel, "norm": norm}
    memory = MultigridMemory("0-1:2", spec, base, peephole=peephole, **options)  # type: ignore[arg-type]
    costs = memory_costs(spec, "0-1:2", base, peephole=peephole, **options)  # type: ignore[arg-type]
    for index, cost in enumerate(costs):
        norms = memory.norms[index : index + 1]
        assert parameters(memory.layers[index]) + parameters(norms) == cost.parameters
    assert sum(cost.cells for cost in costs) == memory.cells == memory.initial_state(2).cells
    reader = memory.reader(1, tail=tail, **options)
    counted = conv_costs(f"{spec} {tail}", 1, base, sees=as_mesh(spec), **options)  # type: ignore[arg-type]
    assert parameters(reader) == total(counted)
    assert f"{total(counted):,}" in str(reader)
    assert f"{total(costs):,}" in str(memory)
    network = MultigridCNN("0-1:2", spec, base, **options)  # type: ignore[arg-type]
    assert parameters(network) == total(conv_costs(spec, "0-1:2", base, **options))  # type: ignore[arg-type]


def test_multiply_adds_are_those_of_the_convolutions() -> None:
    """Counted by PyTorch's own counter over one step of the small mapping network."""
    from torch.utils.flop_counter import FlopCounterMode

    model = _reading(4, SMALL, SMALL_TAIL)
    x = torch.randn(1, 1, 4, 3, 3)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), backend("scan"):
        model(x, queries=(x,), times=torch.tensor([0]))
    costs = memory_costs(SMALL, 4) + conv_costs(f"{SMALL} {SMALL_TAIL}", 4, sees=as_mesh(SMALL))
    assert counter.get_total_flops() == 2 * sum(cost.multiply_adds for cost in costs)
