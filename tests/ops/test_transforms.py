"""What PyTorch may do with a network: transforms, derivatives of any order, shapes, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small import MESH, TAIL, networks, run, x
from torch import Tensor, nn

from comparing import assert_close
from mgmem import MultigridCNN, MultigridMemory, backend
from mgmem.nn import MultigridReader
from mgmem.ops import native
from mgmem.ops.native.verify import refusal

pytestmark = pytest.mark.skipif(not native.available(), reason="no C++ compiler here")


def function(memory: MultigridMemory, reader: MultigridReader) -> Callable[[Tensor], Tensor]:
    def answer(inputs: Tensor) -> Tensor:
        h, _ = memory(inputs)
        return reader(inputs, h).square().sum()

    return answer


def by_way(way: str, compute: Callable[[], Any]) -> Any:
    with backend(way):
        return compute()


@pytest.mark.parametrize("way", ["native", "scan"])
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("what", ["jvp", "grad", "vmap", "jacrev", "hessian", "forward_ad"])
def test_transforms_fall_back_by_themselves(way: str, what: str) -> None:
    answer = function(*networks())
    inputs, tangent = x(1, 1), torch.randn(1, 1, 2, 3, 3)

    def forward_ad() -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(inputs, tangent)
            return torch.autograd.forward_ad.unpack_dual(answer(dual)).tangent

    compute = {
        "jvp": lambda: torch.func.jvp(answer, (inputs,), (tangent,))[1],
        "grad": lambda: torch.func.grad(answer)(inputs),
        "vmap": lambda: torch.func.vmap(answer)(torch.stack([inputs, tangent])),
        "jacrev": lambda: torch.func.jacrev(answer)(inputs),
        "hessian": lambda: torch.func.hessian(answer)(inputs),
        "forward_ad": forward_ad,
    }[what]
    expected = by_way("reference", compute)
    assert bool(expected.any())
    torch.testing.assert_close(by_way(way, compute), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", ["native", "scan"])
def test_gradients_of_parameters_by_torch_func(way: str) -> None:
    memory, _ = networks()
    parameters = {name: p.detach() for name, p in memory.named_parameters()}

    def loss(values: dict[str, Tensor]) -> Tensor:
        h, _ = torch.func.functional_call(memory, values, (x(),))
        return h[-1].finest.square().sum()

    expected = by_way("reference", lambda: torch.func.grad(loss)(parameters))
    got = by_way(way, lambda: torch.func.grad(loss)(parameters))
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("way", ["native", "scan"])
@pytest.mark.parametrize("peephole", ["none", "cell"])
def test_gradients_can_be_differentiated_again(way: str, peephole: Any) -> None:
    memory = MultigridMemory(2, MESH, peephole=peephole)
    reader = memory.reader(tail=TAIL)
    parameters = [*memory.parameters(), *reader.parameters()]
    reset, lengths = torch.tensor([[False, False], [False, True]]), torch.tensor([1, 2])

    def penalty() -> tuple[Tensor, ...]:
        inputs = x().requires_grad_()
        h, state = memory(inputs, reset=reset, lengths=lengths)
        loss = reader(inputs, h).square().sum() + state.layers[-1].c.finest.sum()
        first = torch.autograd.grad(loss, [inputs, *parameters], create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), parameters)  # type: ignore[arg-type]

    for got, expected in zip(by_way(way, penalty), by_way("reference", penalty), strict=True):
        assert_close(got, expected, 2e-5)  # of thousands: a small entry is a sum of large ones


@pytest.mark.parametrize("way", ["native", "scan"])
def test_many_gradients_at_once(way: str) -> None:
    network, memory = MultigridCNN(2, "0-1:2 0:1"), MultigridMemory(2, "0-1:2")
    inputs = x(1, 1).requires_grad_()

    def jacobian() -> Tensor:
        outputs = network(memory(inputs)[0][-1][0][0]).finest.flatten()
        (rows,) = torch.autograd.grad(
            outputs, inputs, torch.eye(outputs.numel()), is_grads_batched=True
        )
        return rows

    torch.testing.assert_close(by_way(way, jacobian), by_way("reference", jacobian))


def test_on_meta_there_are_shapes() -> None:
    memory, reader = networks()
    memory.to("meta"), reader.to("meta")
    for learning in (False, True):
        with torch.set_grad_enabled(learning):
            h, state = memory(x().to("meta"))
            h, state = memory.step(x()[0].to("meta"), state)
            answer = reader(x()[0].to("meta"), h)
    assert answer.is_meta
    assert answer.shape == (2, 2, 3, 3)
    assert state.batch == 2


def test_operations_are_counted_where_somebody_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    memory, reader = networks()
    counts = []
    for way in ("auto", "reference"):
        with FlopCounterMode(display=False) as counter:
            run(memory, reader, way, False)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_the_verifier_says_why_not() -> None:
    plain = torch.zeros(2)
    assert refusal([plain, nn.Parameter(plain)]) is None
    assert "float64" in str(refusal([plain, plain.double()]))
    assert "negative" in str(refusal([torch._neg_view(plain)]))
    assert "meta" in str(refusal([plain.to("meta")]))
    assert "sparse" in str(refusal([plain.to_sparse()]))
    assert "uint8" in str(refusal([plain], [None, torch.zeros(1, dtype=torch.uint8)]))
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in str(refusal([plain]))
    torch.func.vmap(lambda t: _assert_transformed(t) or t)(plain)


def _assert_transformed(tensor: Tensor) -> None:
    assert "torch.func" in str(refusal([tensor]))
