"""What does not fit is refused with both sides named, before anything is computed."""

from __future__ import annotations

import pytest
import torch

from mgmem import EncoderDecoder, MultigridCNN, MultigridMemory, Pyramid, ReadWrite, UsageError
from mgmem.nn.fit import fitted


@pytest.fixture
def memory() -> MultigridMemory:
    return MultigridMemory(4, "0-1:4 0-2:8")


def _refuses(*parts: str) -> object:
    """The error mentions each of ``parts``."""
    return pytest.raises(UsageError, match="(?s)" + "".join(f"(?=.*{part})" for part in parts))


def test_wrong_channels_or_sides(memory: MultigridMemory) -> None:
    with _refuses(r"\(2, 1, 3, 3, 3\)", r"\(3, 3, 3\)", r"\(4, 3, 3\)"):
        memory(torch.randn(2, 1, 3, 3, 3))
    with _refuses(r"\(4, 6, 6\)", r"\(4, 3, 3\)"):
        memory(torch.randn(2, 1, 4, 6, 6))


def test_missing_or_extra_dimensions(memory: MultigridMemory) -> None:
    with _refuses(r"\(1, 4, 3, 3\)", "5 dimensions", r"step\(\)"):
        memory(torch.randn(1, 4, 3, 3))
    with _refuses(r"\(1, 2, 1, 4, 3, 3\)", "5 dimensions"):
        memory.step(torch.randn(2, 1, 4, 3, 3))


def test_wrong_dtypes(memory: MultigridMemory) -> None:
    with _refuses("torch.float64", "torch.float32"):
        memory(torch.randn(2, 1, 4, 3, 3, dtype=torch.float64))
    with _refuses("torch.int64", "torch.float32"):
        memory(torch.ones(2, 1, 4, 3, 3, dtype=torch.int64))
    state = memory.initial_state(1).to(torch.float64)
    with _refuses("torch.float64", "torch.float32", r"state\.to"):
        memory(torch.randn(2, 1, 4, 3, 3), state)


def test_a_pyramid_where_a_tensor_belongs_and_the_reverse(memory: MultigridMemory) -> None:
    grids = tuple(torch.randn(2, 1, 4, 3 << j, 3 << j) for j in range(2))
    with _refuses(r"\[0, 1\]", r"\[0\]"):
        memory(Pyramid(0, grids))
    spread = MultigridMemory("0-1:4", "0-1:4")
    with _refuses("levels 0 to 1", "Pyramid", r"\(2, 1, 4, 3, 3\)"):
        spread(grids[0])
    with _refuses(r"\(2, 1\)", r"\(3, 1\)"):
        spread(Pyramid(0, (grids[0], torch.randn(3, 1, 4, 6, 6))))


def test_a_state_of_another_mesh(memory: MultigridMemory) -> None:
    x = torch.randn(2, 1, 4, 3, 3)
    for spec, parts in [
        ("0-1:4 0-1:8", ["the state lacks layer2.level2", "0-1:4 0-2:8"]),
        ("0-1:4 0-2:8 0:1", ["only the state has layer3.level0", "0-1:4 0-2:8"]),
        ("0-1:4 0-2:6", [r"\(6, 3, 3\)", r"\(8, 3, 3\)"]),
    ]:
        with _refuses(*parts):
            memory(x, MultigridMemory(4, spec).initial_state(1))
    with _refuses(r"\(4, 5, 5\)", r"base \(3, 3\)", r"\(4, 3, 3\)"):
        memory(x, MultigridMemory(4, "0-1:4 0-2:8", (5, 5)).initial_state(1))


def test_a_state_of_another_batch_size(memory: MultigridMemory) -> None:
    with _refuses("batch size 3", "batch size 2"):
        memory(torch.randn(2, 2, 4, 3, 3), memory.initial_state(3))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_in_debug_mode_only(value: float) -> None:
    x = torch.zeros(2, 1, 4, 3, 3)
    x[1, 0, 2, 1, 1] = value
    with _refuses("NaN or infinity"):
        MultigridMemory(4, "0-1:4", check_finite=True)(x)
    MultigridMemory(4, "0-1:4")(x)


def test_flags_and_lengths_of_the_wrong_kind(memory: MultigridMemory) -> None:
    x = torch.randn(3, 2, 4, 3, 3)
    with _refuses("torch.int64", "torch.bool"):
        memory(x, reset=torch.zeros(3, 2, dtype=torch.int64))
    with _refuses(r"\(2, 3\)", r"\(3, 2\)"):
        memory(x, reset=torch.zeros(2, 3, dtype=torch.bool))
    with _refuses("torch.float32", "integers"):
        memory(x, lengths=torch.ones(2))
    with _refuses(r"\(3,\)", r"\(2,\)"):
        memory(x, lengths=torch.tensor([1, 2, 3]))
    for lengths in ([1, 4], [-1, 2]):
        with _refuses(rf"\[{lengths[0]}, {lengths[1]}\]", "between 0 and time = 3"):
            memory(x, lengths=torch.tensor(lengths))


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"kernel": 2}, ["kernel size 2", "odd"]),
        ({"kernel": 0}, ["kernel size 0", "odd"]),
        ({"base": (3, 3, 3)}, [r"\(3, 3, 3\)", "one or two"]),
        ({"base": (3, 0)}, [r"\(3, 0\)", "positive"]),
        ({"peephole": "keyhole"}, ["'keyhole'", "'none', 'channel' or 'cell'"]),
        ({"checkpoint_every": 0}, ["checkpoint_every=0", "positive"]),
        ({"checkpoint_every": 4, "norm": True}, ["norm=True"]),
        ({"spec": "0-2:4"}, [r"level 2 is out of reach of the input \(0:4\)"]),
    ],
)
def test_options_that_can_not_work(options: dict[str, object], parts: list[str]) -> None:
    with _refuses(*parts):
        MultigridMemory(4, **{"spec": "0-1:4", **options})  # type: ignore[arg-type]


def test_a_reader_refuses_the_wrong_query_or_memory(memory: MultigridMemory) -> None:
    reader = memory.reader(2, tail="1-2:4 2:1")
    h, _ = memory(torch.randn(3, 2, 4, 3, 3))
    query = torch.randn(3, 2, 2, 3, 3)
    with _refuses(r"\(4, 3, 3\)", r"\(2, 3, 3\)"):
        reader(torch.randn(3, 2, 4, 3, 3), h)
    with _refuses("torch.float64", "torch.float32"):
        reader(query.double(), h)
    with _refuses(r"\(1, 2\)", r"\(3, 2\)", "times="):
        reader(query[:1], h)
    with _refuses("1 layers", "0-1:4 0-2:8"):
        reader(query, h[:1])
    with _refuses("memory layer 2", r"\(6, 3, 3\)", r"\(8, 3, 3\)"):
        reader(query, MultigridMemory(4, "0-1:4 0-2:6")(torch.randn(3, 2, 4, 3, 3))[0])
    with _refuses("memory layer 1", r"\(4, 5, 5\)", r"\(4, 3, 3\)"):
        reader(query, MultigridMemory(4, "0-1:4 0-2:8", (5, 5))(torch.randn(3, 2, 4, 5, 5))[0])
    with _refuses("memory layer 2", r"levels \[0, 1\]", r"\[0, 1, 2\]"):
        reader(query, MultigridMemory(4, "0-1:4 0-1:8")(torch.randn(3, 2, 4, 3, 3))[0])


@pytest.mark.parametrize("shape", [(2, 1, 4, 3, 3), (4, 3, 3)])
def test_a_plain_cnn_takes_one_leading_dimension(shape: tuple[int, ...]) -> None:
    with _refuses(r"\(N, channels, \*space\)", str(shape).replace("(", r"\(").replace(")", r"\)")):
        MultigridCNN(4, "0-1:2")(torch.randn(shape))


def test_a_tail_out_of_reach_is_refused_when_the_reader_is_built(memory: MultigridMemory) -> None:
    with _refuses("level 4 is out of reach", "0-2:8"):
        memory.reader(4, tail="4:1")


def test_models_refuse_the_wrong_number_of_queries_and_unknown_fits(
    memory: MultigridMemory,
) -> None:
    x = torch.randn(2, 1, 4, 3, 3)
    model = ReadWrite(memory, [memory.reader(4, tail="0:1")])
    with _refuses("2 query tensors", "1 reader"):
        model(x, queries=(x, x), times=torch.tensor([0, 1]))
    with _refuses("2 heads", "1 reader"):
        ReadWrite(memory, [memory.reader(4, tail="0:1")], heads=[torch.nn.Identity()] * 2)
    pair = EncoderDecoder(4, "0-1:2", "0:1")
    with _refuses("2 query tensors"):
        pair(x, queries=(x, x))
    with _refuses("'squeeze'", "'as is', 'resize', 'pad', 'unshuffle'"):
        fitted(x, memory.input, memory.base, "squeeze")  # type: ignore[arg-type]
