"""An explorer in the page: its policy's numbers, its walks, its files."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from functools import partial

import numpy as np
import pytest
import torch
from playing import NODE, PAGE, Visit, half, needs_node, until
from test_rules import TASK, in_page

from mgmem.cli import main
from mgmem.experiments import explore
from mgmem.experiments.explore import find_exploration, load_mapper
from mgmem.play.explorer import export_explorer
from mgmem.play.serve import open_server
from mgmem.play.site import digest, shipped_site
from mgmem.rl import sight
from mgmem.rl.policy import ReaderPolicy
from mgmem.rl.vector import MazeVectorEnv
from mgmem.tasks.world import World
from mgmem.training.weights import save_weights

EXPLORATION = find_exploration("explore-15")
STEPS = EXPLORATION.steps


@pytest.fixture(scope="module")
def explorer():
    """A memory and an agent on it with the page's weights, as sure of itself as a trained one."""
    mapper = load_mapper(EXPLORATION)
    half(mapper.model)
    policy = explore.make_policy(EXPLORATION, "memory", mapper, 3)
    assert isinstance(policy, ReaderPolicy)
    with torch.no_grad():
        policy.heads.action.weight *= 500
    return mapper, explore.make_agent(EXPLORATION, "memory", mapper, half(policy), 1)


@pytest.fixture(scope="module")
def files(explorer):
    mapper, agent = explorer
    return export_explorer(mapper, agent, STEPS, {"name": "test"}, probe_episodes=4)


@torch.no_grad()
def walk_of(agent):
    """A whole walk of the agent: what it saw, where, and its logits."""
    env = MazeVectorEnv(1, EXPLORATION.world, STEPS, split="test")
    observation, _ = env.reset(seed=11)
    seen, logits = [], []
    for _ in range(STEPS):
        glimpse = agent.look(observation, env.fresh)
        seen.append({
            "walls": observation["view"][0].flatten().tolist(),
            "location": observation["place"][0].tolist(),
        })  # fmt: skip
        logits.append(agent.judge(glimpse)[0][0])
        observation, *_ = env.step(agent.decide(glimpse)[0].numpy())
    return seen, torch.stack(logits)


@needs_node
@pytest.mark.parametrize(("stored", "tolerance"), [(torch.float32, 1e-4), (torch.float16, 1e-3)])
def test_the_page_decides_as_pytorch_does_over_a_whole_walk(
    tmp_path, explorer, files, monkeypatch, stored, tolerance
):
    """PyTorch rounds windows to halves, because it keeps them to learn from; the page does not.

    Without that rounding only the order of sums differs. With it each number that the policy
    reads, below 2 in size, is off by up to 2^-11 of it. These errors have either sign and partly
    cancel: the logits were seen to be off by up to 5e-4, and a chance by less than half of that.
    """
    monkeypatch.setattr(sight, "STORED", stored)
    walk, logits = walk_of(explorer[1])
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    given = json.dumps({"page": str(PAGE), "steps": walk, "ask": {}, "judge": True})
    script = PAGE.parents[3] / "tests" / "play" / "run_model.mjs"
    done = subprocess.run(
        [NODE, script, tmp_path], input=given.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    page = np.frombuffer(done.stdout, np.float32).reshape(STEPS, 4)
    assert len({tuple(step["location"]) for step in walk}) > 20
    assert logits.std() > 0.3
    np.testing.assert_allclose(page, logits, atol=tolerance, rtol=0)


def test_policy_and_memory_are_halves_in_a_folder_under_a_megabyte(explorer, files):
    mapper, agent = explorer
    header = json.loads(files["memory.json"])
    assert sum(map(len, {**shipped_site(), **files}.values())) < 1_000_000
    assert (header["task"]["motion"], header["task"]["steps"]) == ("random", 500)
    assert header["task"]["start"] == mapper.task.start
    assert (header["policy"]["window"], header["policy"]["steps"]) == (12, 300)
    entries = {entry["name"]: entry for entry in header["tensors"]}
    ours = agent.policy.state_dict()
    for name, own in (
        ("policy.1.0.weight", "reader.layers.1.weights.0"),
        ("policy.join.weight", "join.weight"),
        ("policy.action.bias", "heads.action.bias"),
    ):
        entry = entries[name]
        assert entry["kind"] == "f2"
        numbers = np.frombuffer(
            files["memory.bin"], "<f2", np.prod(entry["shape"]), entry["offset"]
        )
        np.testing.assert_array_equal(numbers.reshape(entry["shape"]), ours[own].numpy())


@needs_node
def test_walls_stop_the_agent_as_in_the_environment_and_coverage_is_the_same():
    cases = [
        {"seed": seed, "letters": letters, "motion": "random", "count": 80, "goal": [1, 1]}
        for seed, letters in ((7, "u9l9d3"), (8, "r4u4x2"), (9, ""))
    ]
    for case, found in zip(cases, in_page(solid=cases, task=TASK)["solid"], strict=True):
        walls = np.array(found["walls"], bool).reshape(1, 15, 15)
        world = World(walls)
        start = cell = world.cells(7, 7)
        path = [cell]
        for letter, count in re.findall(r"([a-z])(\d*)", found["first"]):
            for _ in range(int(count or 1)):
                if letter != "x":
                    cell, _ = world.move(cell, np.array(["udlr".index(letter)]))
                path.append(cell)
        assert world.places(np.stack(path))[:, 0].tolist() == found["path"], case
        reachable = world.reachable(start)
        assert found["coverage"] == {
            "visited": len({int(cell[0]) for cell in path}),
            "reachable": int(reachable.sum()),
        }
        assert found["agent"] == [1, 1] or not reachable[0, 1, 1]


@needs_node
def test_from_the_same_moment_the_same_way_is_taken_and_another_step_leads_elsewhere():
    cases = [
        {"seed": seed, "letters": letters, "motion": motion, "count": 30, "goal": [7, 7]}
        for motion in ("explore", "random")
        for seed, letters in ((7, "r"), (7, "l"), (8, "r"), (7, "r-e5_3x3"))
    ]
    found = in_page(solid=cases, task=TASK)["solid"]
    assert all(walk["first"] == walk["again"] for walk in found)
    assert all(walk["agent"] == [7, 7] for walk in found)
    # Where a walk came from decides as well, not only where it stands.
    tails = [walk["first"][len(case["letters"]) :] for walk, case in zip(found, cases, strict=True)]
    assert len(set(tails[:4])) == len(set(tails[4:])) == 4


@needs_node
def test_steps_are_drawn_by_their_chances():
    chances = [0.1, 0.2, 0.3, 0.4]
    lots = np.random.default_rng(0).random(4000).tolist()
    drawn = in_page(lots=[[chances, lot] for lot in [*lots, 0, 1]])["drawn"]
    assert drawn[-2:] == [0, 3]
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), chances, atol=0.03)
    cases = [
        {"seed": seed, "letters": "", "motion": "explore", "count": 60, "goal": [7, 7]}
        for seed in range(40)
    ]
    text = "".join(walk["first"] for walk in in_page(solid=cases, task=TASK)["solid"])
    counts = {letter: 0 for letter in "udlr"}
    for letter, count in re.findall(r"([a-z])(\d*)", text):
        counts[letter] += int(count or 1)
    expected = np.exp([0, 0, 1, 2]) / np.exp([0, 0, 1, 2]).sum()  # as the script's engine judges
    shares = np.array(list(counts.values())) / sum(counts.values())
    np.testing.assert_allclose(shares, expected, atol=0.03)


@needs_node
def test_a_page_offers_what_is_true_of_its_memory():
    spiral, random = {"task": {"motion": "spiral"}}, {"task": {"motion": "random"}}
    found = in_page(headers=[spiral, random, {**random, "policy": {}}, {**spiral, "policy": {}}])
    assert found["headers"] == [
        [False, "spiral", "random"],
        [True, "random"],
        [True, "explore", "random"],
        [True, "explore", "random"],
    ]


def weights_of(folder, system, mapper):
    """A run folder with an agent that has hardly learned."""
    policy = explore.make_policy(EXPLORATION, system, mapper, 0)
    trained = {"updates": 1, "steps": 1, "seconds": 1.0}
    about = explore.about_run(EXPLORATION, system, mapper, "ppo", 0)
    folder.mkdir()
    save_weights(
        folder / "best.safetensors",
        policy.state_dict(),
        {**about, "command": "mgmem train explore-15", "trained": trained},
    )
    return folder


def test_the_command_writes_a_page_with_an_explorer(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "mgmem.play.explorer.export_explorer", partial(export_explorer, probe_episodes=2)
    )
    mapper = load_mapper(EXPLORATION)
    run = weights_of(tmp_path / "run", "memory", mapper)
    assert main(["play", str(run), "--out", str(tmp_path / "page")]) == 0
    header = json.loads((tmp_path / "page" / "memory.json").read_text())
    assert header["about"]["name"] == "explore-15"
    assert header["about"]["source"] == digest(run / "best.safetensors")
    assert "policy" in header
    reactive = weights_of(tmp_path / "reactive", "reactive", mapper)
    for words, said in (
        ([reactive], "those that read a memory"),
        ([run, "--memory", "mapping-15-small"], "was trained on the memory of mapping-15-random"),
        (["mapping-9", "--memory", "mapping-9"], "leave it out"),
        (["explore-16"], "did you mean 'explore-15'"),
    ):
        assert main(["play", *map(str, words), "--out", str(tmp_path / "none")]) == 2
        assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def exploring(files):
    """The page of an explorer, as `mgmem play explore-15` serves it."""
    with open_server({**shipped_site(), **files}, 8420) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.xdist_group("browser")
def test_it_explores_at_once_and_a_link_leads_on_the_same_way(chromium, exploring):
    settled = "async () => { await mgmem.jobs; await mgmem.asked(); }"
    look = "[mgmem.walk.toText(), [...mgmem.now.state], mgmem.now.lot, mgmem.address()]"
    size = {"width": 1280, "height": 900}
    with Visit(chromium, exploring, viewport=size) as visit:
        page = visit.open()
        assert page.locator("#motion input").evaluate_all("all => all.map((i) => i.value)") == [
            "explore",
            "random",
        ]
        assert page.get_by_label("explore", exact=True).is_checked()
        until(page, "mgmem.now.steps > 8")
        page.keyboard.press("Space")
        page.evaluate(settled)
        until(page, "mgmem.now.chances")
        assert abs(sum(page.evaluate("mgmem.now.chances")) - 1) < 1e-6
        assert "cells in reach" in page.inner_text("#world-said")
        assert "random walks of 500 steps" in page.inner_text("#policy")
        assert page.inner_text("#learned").startswith("Walls stop the agent")
        shown = page.evaluate(look)
        path = page.evaluate("mgmem.walk.path().map(([r, c]) => mgmem.now.walls[r * 15 + c])")
        assert not any(path)
        with Visit(chromium, exploring, viewport=size) as second:
            other = second.open(shown[-1])
            assert other.evaluate(look) == shown
            for tab in (page, other):
                for _ in range(3):
                    tab.click("#forward")
                tab.evaluate(settled)
            onward = page.evaluate(look)
            assert onward[0] != shown[0]
            assert other.evaluate(look) == onward
            other.evaluate("mgmem.goTo(2)")
            for _ in range(len(path)):  # as many as there were, anew
                other.evaluate("mgmem.moveOn()")
            assert other.evaluate("mgmem.walk.toText()") == onward[0]
        assert visit.complaints == second.complaints == []
