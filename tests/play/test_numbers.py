"""The page computes what PyTorch computes: states, answers and the probe, over whole walks."""

from __future__ import annotations

import copy
import json
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from playing import NODE, PAGE, half, needs_node

from mgmem import ops
from mgmem.experiments import find
from mgmem.experiments.records import shipped_weights
from mgmem.nn.fit import fitted
from mgmem.play.export import export_memory
from mgmem.report.map_probe import fit_probe
from mgmem.report.moments import collect, region
from mgmem.tasks.mapping import Mapping
from mgmem.tasks.seeds import SeedStream
from mgmem.training.evaluation import TEST_SEED, query_steps
from mgmem.training.weights import fill, load_weights

pytestmark = needs_node


@dataclass
class Moment:
    state: np.ndarray
    answers: np.ndarray
    seen: np.ndarray
    wall: np.ndarray


def build(name, options=None, shipped=False):
    task, model = find(name).build(seed=3, options=options)
    if shipped:
        path = shipped_weights(name)
        fill(model, load_weights(path).tensors, path)
    return task, half(model.eval())


def walk_of(task, asked):
    """Observations of a test episode, and its questions after the steps asked."""
    run = task.episodes(SeedStream(11, "test"), 0, 1)
    return run.batch(0, run.length, torch.tensor(asked))


def in_page(folder, task, model, batch, asked):
    """What the page's modules compute on the same walk."""
    files = export_memory(model, task, {"name": "test"}, probe_episodes=4)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    scale = json.loads(files["memory.json"])["task"]["location"]
    location = batch.inputs[:, 0, 2:, 0, 0] / scale["scale"] - scale["shift"]
    walk = {
        "page": str(PAGE),
        "steps": [
            {"walls": x[0, 1].flatten().int().tolist(), "location": place.round().tolist()}
            for x, place in zip(batch.inputs, location, strict=True)
        ],
        "ask": {
            step: [query[0, 1].flatten().int().tolist()]
            for step, query in zip(asked, batch.queries[0], strict=True)
        },
    }
    script = PAGE.parents[3] / "tests" / "play" / "run_model.mjs"
    done = subprocess.run(
        [NODE, script, folder], input=json.dumps(walk).encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    numbers = np.frombuffer(done.stdout, np.float32)
    cells, area = model.cells, task.grid**2
    each = 2 * cells + 3 * area
    moments = []
    for part in numbers.reshape(len(asked), each):
        state, answers, seen, wall = np.split(part, np.cumsum([2 * cells, area, area]))
        moments.append(Moment(state, answers, seen, wall))
    return moments


@torch.no_grad()
def in_torch(model, batch, asked):
    """(h and c of all layers, logits) after each of the steps asked; the reference, in doubles."""
    model = copy.deepcopy(model).double()
    memory, found = model.memory, []
    with ops.backend("reference"):
        state, start = None, 0
        for step in asked:
            piece = batch.inputs[start : step + 1].double()
            _, state = memory(fitted(piece, memory.input, memory.base, model.fit), state)
            start = step + 1
            grids = [g.flatten() for part in "hc" for s in state.layers for g in getattr(s, part)]
            found.append(torch.cat(grids).numpy())
        queries = tuple(query.double() for query in batch.queries)
        (answers,), _ = model(batch.inputs.double(), queries=queries, times=batch.times)
    return found, answers[:, 0, 0].flatten(1).numpy()


def close(folder, task, model, asked):
    batch = walk_of(task, asked)
    moments = in_page(folder, task, model, batch, asked)
    states, answers = in_torch(model, batch, asked)
    for moment, state, answer in zip(moments, states, answers, strict=True):
        np.testing.assert_allclose(moment.state, state, atol=1e-4, rtol=0)
        np.testing.assert_allclose(moment.answers, answer, atol=1e-4 * max(1, abs(answer).max()))
        chance = torch.from_numpy(moment.answers.copy()).sigmoid()
        np.testing.assert_allclose(chance, torch.from_numpy(answer).sigmoid(), atol=1e-4)


def test_the_shipped_memory_computes_the_same_numbers_over_a_whole_walk(tmp_path):
    task, model = build("mapping-15-small", shipped=True)
    assert task.episode_length == 169
    close(tmp_path, task, model, list(range(0, 169, 12)))  # the last is 168


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mapping-9", None),
        ("mapping-25-query9", {"path_length": "60"}),  # questions unshuffled
        ("mapping-25-fov9", {"path_length": "4"}),  # observations on three levels, padded
        ("mapping-15-ablated", {"path_length": "10"}),
        ("mapping-15-conv-lstm-thick", {"path_length": "4"}),  # observations resized
        ("mapping-9", {"location": "raw"}),
    ],
)
def test_every_kind_of_mapping_memory_runs_in_the_page(tmp_path, name, options):
    task, model = build(name, options)
    length = task.episode_length
    close(tmp_path, task, model, [length - 2, length - 1])


def test_the_page_reads_the_probe_as_python_does(tmp_path):
    task, model = build("mapping-9")
    assert isinstance(task, Mapping)
    steps = query_steps(task.episode_length, 6).tolist()
    fit_on = collect(model, task, SeedStream(TEST_SEED, "train"), 0, 4, steps)
    fresh = collect(model, task, SeedStream(11, "test"), 0, 1, [48])
    seen, wall = fit_probe(fit_on, task).read(fresh, task)[0]
    (moment,) = in_page(tmp_path, task, model, walk_of(task, [48]), [48])
    inside = region(task)
    for page, python in ((moment.seen, seen), (moment.wall, wall)):
        shown = page.reshape(task.grid, task.grid)[inside, inside]
        np.testing.assert_allclose(shown, python.clamp(0, 1), atol=1e-3)
