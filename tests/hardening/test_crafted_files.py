"""Files with a right checksum and wrong content: one clear error, or no harm."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from damage import COUNT, ODD, odd, odd_tensors
from safetensors.torch import save as serialize

from mgmem import MemoryState, MultigridMemory, UsageError
from mgmem.cli import main
from mgmem.experiments import find
from mgmem.experiments.multigrid import reader_writer
from mgmem.experiments.trained import load
from mgmem.files import tensors_digest
from mgmem.training import checkpoint, weights
from mgmem.training.content import newest
from mgmem.training.feed import Growth
from mgmem.training.loop import Limits, Trainer
from mgmem.training.optim import AdamW, Muon
from mgmem.training.progress import Reporter
from mgmem.training.recipe import Recipe, Stage, Validation
from mgmem.training.walks import Walks

pytestmark = pytest.mark.usefixtures("two_gigabytes")

ABOUT: dict[str, Any] = {
    "experiment": "mapping-9",
    "recipe": "fast",
    "seed": 0,
    "task": {"world": "9"},
    "trained": {"updates": 3, "steps": 40, "seconds": 1.5},
}


def write_weights(path: Path, tensors: dict[str, torch.Tensor], text: str) -> None:
    digest = tensors_digest(tensors, text)
    metadata = {"format": weights._FORMAT, "about": text, "sha256": digest}
    path.write_bytes(serialize(tensors, metadata))


def test_weights_with_an_odd_description(tmp_path: Path) -> None:
    path, values = tmp_path / "weights.safetensors", [*ODD, 10**400]
    _, model = find("mapping-9").build()
    tensors = {n: t.contiguous() for n, t in model.state_dict().items()}
    for seed in range(COUNT // 8):
        text = json.dumps(odd(ABOUT, Random(seed), values))
        write_weights(path, tensors, text)
        try:
            trained = load(path)
        except UsageError:
            continue
        assert type(trained.about["seed"]) is int, text
    for text in ("", "[" * 100_000, "{", '{"seed": ' + "9" * 5000 + "}", "null"):
        write_weights(path, tensors, text)
        with pytest.raises(UsageError, match="description"):
            load(path)


def test_odd_weights_are_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    _, model = find("mapping-9").build()
    whole = {n: t.contiguous() for n, t in model.state_dict().items()}
    name = next(iter(whole))
    for tensor in odd_tensors()[:7]:
        write_weights(path, {**whole, name: tensor}, json.dumps(ABOUT))
        with pytest.raises(UsageError, match=name):
            load(path)


def test_no_name_in_a_file_leads_a_record_out_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    _, model = find("mapping-9").build()
    tensors = {n: t.contiguous() for n, t in model.state_dict().items()}
    for changed in ({"seed": "0/../../../X"}, {"recipe": "../../X"}, {"experiment": "../X"}):
        write_weights(folder / "best.safetensors", tensors, json.dumps({**ABOUT, **changed}))
        results = ["--results", str(tmp_path / "results")]
        assert main(["evaluate", str(folder), "--record", "--episodes", "2", *results]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*X*")] == []


def write_state(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    digest = tensors_digest(tensors, "mgmem-state-2")
    path.write_bytes(serialize(tensors, {"format": "mgmem-state-2", "sha256": digest}))


def test_states_with_odd_names_and_tensors(tmp_path: Path) -> None:
    path, memory = tmp_path / "state", MultigridMemory(1, "0-1:2 0:1")
    whole = {n: t.contiguous() for n, t in memory.initial_state(2).tensors().items()}
    x = torch.zeros(1, 2, 1, 3, 3)
    values = [*odd_tensors()[:7], torch.zeros(2, 2, 3), torch.zeros(0, 2, 3, 3)]
    for seed in range(COUNT // 8):
        tensors = {str(n): t for n, t in odd(whole, Random(seed), values).items()}
        write_state(path, tensors)
        try:
            memory(x, MemoryState.load(path))
        except UsageError:
            continue


def test_levels_far_apart_take_no_memory(tmp_path: Path) -> None:
    grid = torch.zeros(1, 1, 1, 1)
    for far in ("layer1.level300000000", "layer300000000.level0", "layer2.level999999999"):
        names = [f"{place}.{name}" for place in ("layer1.level0", far) for name in "hc"]
        write_state(tmp_path / "state", {name: grid.clone() for name in names})
        try:
            MultigridMemory(1, "0:1", base=(1, 1))(grid[None], MemoryState.load(tmp_path / "state"))
        except UsageError:
            continue
        pytest.fail(far)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Any]:
    """Makes trainers of a run that began with AdamW, or with Muon."""
    with Reporter(tmp_path, "mapping-9", 8, quiet=True) as reporter:

        def make(muon: bool) -> Trainer:
            task, _ = find("mapping-9").build()
            model = reader_writer("0-1:2 0-2:2", "0-2:2 2:1", input=4)(task)
            stage = Stage(
                "one", Walks(chunk=3, groups=2, growth=Growth(3)), Muon() if muon else AdamW(),
                updates=6, batch=2, average=0.9, validation=Validation(2, 2), hands_on="best",
            )  # fmt: skip
            recipe = Recipe((stage, Stage("two", Walks(chunk=3), AdamW(), updates=2, batch=2)))
            return Trainer(model, task, recipe, tmp_path, ABOUT, "mgmem", reporter=reporter)

        yield make


@pytest.mark.parametrize("muon", [False, True])
def test_checkpoints_with_odd_content(runs: Any, tmp_path: Path, muon: bool) -> None:
    runs(muon).run(Limits(max_updates=2))
    whole, _ = checkpoint.newest(tmp_path)
    assert whole is not None
    values, went_on = [*ODD, *odd_tensors()], 0
    for seed in range(COUNT // 20):
        for old in tmp_path.glob("*.ckpt"):
            old.unlink()
        draw = Random(seed)
        # Most places are single weights and moments: go for the others as often.
        part = draw.choice(["progress", "stage", "recipe", None, None])
        content = odd(whole if part is None else whole[part], draw, values)
        content = content if part is None else {**whole, part: content}
        checkpoint.save(tmp_path, 2, content)
        try:
            run = runs(muon)
            run._resume()
            run.current.step()
            run.spent(), run.summary(), run._left()
            went_on += 1
        except UsageError:
            continue
    assert went_on < COUNT // 20


def test_a_compressed_checkpoint_is_refused_unread(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"zeros": torch.zeros(1)})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**7)
    payload = packed.getvalue()
    digest = hashlib.sha256(payload).hexdigest().encode()
    path = tmp_path / "checkpoint-1.ckpt"
    path.write_bytes(checkpoint._MAGIC + digest + b"\n" + payload)
    with pytest.raises(checkpoint.DamagedCheckpoint, match="compressed"):
        checkpoint.read(path)


def test_an_archive_that_nests_without_end_is_one_error(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    checkpoint.save(tmp_path, 1, {"recipe": deep, "about": {}})
    with pytest.raises(UsageError, match="not a checkpoint"):
        newest(tmp_path, "f")
