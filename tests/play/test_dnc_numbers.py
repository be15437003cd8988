"""The DNC beside the memory computes in the page what PyTorch computes, over whole walks."""

from __future__ import annotations

import copy
import json
import subprocess

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import NODE, PAGE, half, needs_node
from test_rules import in_page as by_rules

from mgmem.experiments.trained import load
from mgmem.play.beside import export_beside
from mgmem.play.site import shipped_site
from mgmem.tasks.seeds import SeedStream

pytestmark = needs_node


@pytest.fixture(scope="module")
def trained():
    return load("mapping-15-dnc")


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """The DNC's files, as the page loads them."""
    folder = tmp_path_factory.mktemp("beside")
    page = json.loads(shipped_site()["memory.json"])
    for name, content in export_beside(trained, page).items():
        (folder / name).write_bytes(content)
    return folder


def walk_of(task, episode, steps=None):
    """A test episode, whole or its first steps, a question after every step."""
    run = task.episodes(SeedStream(11, "test"), episode, 1)
    return run.batch(0, steps or run.length)


def unlike(dnc):
    """A memory in which no two slots are alike, neither in content nor in use."""
    generator = torch.Generator().manual_seed(5)
    memory = torch.randn(dnc.slots, dnc.width, generator=generator, dtype=torch.float64)
    used = torch.randperm(dnc.slots, generator=generator).double() / dnc.slots
    return {"memory": 0.3 * memory, "usage": used}


def in_page(folder, task, batch, ask, start=None):
    """What the page has after each of the steps `ask`, asked in that order.

    Hidden, cell, memory, usage, write, read; reads of the copy that was asked, and its answer.
    """
    location = batch.inputs[:, 0, 2:, 0, 0] * task.grid / 2
    walk = {
        "page": str(PAGE),
        "steps": [
            {"walls": x[0, 1].flatten().int().tolist(), "location": place.round().tolist()}
            for x, place in zip(batch.inputs, location, strict=True)
        ],
        "ask": [[step, batch.queries[0][step, 0, 1].flatten().int().tolist()] for step in ask],
        "start": {name: value.flatten().tolist() for name, value in (start or {}).items()},
    }
    script = PAGE.parents[3] / "tests" / "play" / "run_dnc.mjs"
    done = subprocess.run(
        [NODE, script, folder], input=json.dumps(walk).encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    numbers = np.frombuffer(done.stdout).reshape(len(ask), -1)
    spec = json.loads((folder / "beside.json").read_text())["dnc"]
    hidden, slots, width, heads = (spec[k] for k in ("hidden", "slots", "width", "heads"))
    sizes = [hidden, hidden, slots * width, slots, slots, heads * slots, heads * width]
    return np.split(numbers, np.cumsum(sizes), axis=1)


@torch.no_grad()
def in_torch(model, batch, start=None):
    """The same after every step, in doubles with the page's weights; each question on a copy."""
    model = half(copy.deepcopy(model)).double()
    dnc, steps = model.core, len(batch.inputs)
    asked = model.steps(batch.inputs.double(), [batch.queries[0].double()], batch.times)
    silent = asked.clone()
    silent[:, :, -1 - batch.queries[0][0, 0].numel() :] = 0
    state = dnc.initial_state(1)
    begun = {name: value[None] for name, value in (start or {}).items()}
    state = state._replace(memory=state.memory._replace(**begun))
    found = []
    for step in range(steps):
        output, copied = dnc.step(asked[step], state)
        _, state = dnc.step(silent[step], state)
        memory = state.memory
        parts = [
            state.hidden, state.cell, memory.memory, memory.usage, memory.write_weights,
            memory.read_weights, copied.memory.reads, model.heads[0](output),
        ]  # fmt: skip
        found.append([part.flatten().numpy() for part in parts])
    return [np.stack(values) for values in zip(*found, strict=True)]


def test_it_computes_the_same_numbers_slot_by_slot_over_a_whole_walk(trained, folder):
    start = unlike(trained.model.core)
    batch = walk_of(trained.task, 0)
    assert len(batch.inputs) == 169
    page = in_page(folder, trained.task, batch, range(169), start)
    for ours, theirs in zip(in_torch(trained.model, batch, start), page, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4, rtol=0)


def test_from_an_empty_memory_it_computes_the_same_up_to_the_order_of_slots(trained, folder):
    """Slots that were never written to are alike: rounding decides which of them is next. So what
    they hold is compared in order of size.
    """
    steps = 60
    batch = walk_of(trained.task, 1, steps)
    page = in_page(folder, trained.task, batch, range(steps))
    names = ("hidden", "cell", "memory", "usage", "write", "read", "reads", "answer")
    ours = in_torch(trained.model, batch)
    shapes = {"memory": (steps, 500, 16), "usage": (steps, 500), "write": (steps, 500)}
    for name, theirs, own in zip(names, page, ours, strict=True):
        if name == "read":
            theirs, own = (np.sort(x.reshape(steps, 4, 500), axis=2) for x in (theirs, own))
        elif name in shapes:
            theirs, own = (np.sort(x.reshape(shapes[name]), axis=1) for x in (theirs, own))
        np.testing.assert_allclose(theirs, own, atol=1e-4, rtol=0, err_msg=name)


def test_going_back_in_time_changes_nothing(trained, folder):
    batch = walk_of(trained.task, 2)
    there = in_page(folder, trained.task, batch, [20, 40, 70])
    back = in_page(folder, trained.task, batch, [70, 20, 40])
    for one, other in zip(there, back, strict=True):
        np.testing.assert_array_equal(one, other[[1, 2, 0]])


jumps = st.lists(
    st.one_of(
        st.tuples(st.just("after"), st.floats(0, 1)),
        st.tuples(st.just("follow"), st.floats(0, 1), st.integers(0, 200)),
    ),
    max_size=12,
)


@settings(max_examples=5)
@given(st.lists(jumps, min_size=20, max_size=20))
def test_a_state_is_that_of_the_walk_up_to_it_however_one_came_there(cases):
    found = by_rules(trails=cases)["trails"]
    assert all(trail["wrong"] == 0 for trail in found)
    assert max(trail["kept"] for trail in found) <= 16


def test_a_long_walk_keeps_few_states():
    (trail,) = by_rules(trails=[[("follow", 0, 3000), ("after", 1), ("after", 0.7)]])["trails"]
    assert (trail["wrong"], trail["kept"]) == (0, 12)
    assert trail["computed"] < 3300
