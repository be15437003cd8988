"""The page's mazes, walks and truths follow the task's rules; a link's text is a whole walk."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import NODE, PAGE, needs_node

from mgmem.tasks.mapping import Mapping
from mgmem.tasks.maze import _CHOICES, COMPLEXITY, DENSITY, _seed_cells, make_mazes
from mgmem.tasks.motion import Spiral
from mgmem.tasks.seeds import SeedStream, below, draw

pytestmark = needs_node

TASK = {"world": 15, "fov": 3, "query": 3, "start": 7}


def in_page(**cases):
    script = PAGE.parents[3] / "tests" / "play" / "run_rules.mjs"
    given_cases = json.dumps({"page": str(PAGE), **cases})
    done = subprocess.run(
        [NODE, script], input=given_cases, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_from_the_same_draws_the_page_grows_the_same_mazes():
    cases, expected = [], []
    for size in (5, 9, 15, 25):
        keys = SeedStream(3, "test").keys(0, 8)
        seeds, tries = int(DENSITY * (size // 2) ** 2), int(COMPLEXITY * 10 * size)
        cells = _seed_cells(keys, seeds, size)
        numbers = draw(keys, "maze growth", np.arange(seeds * tries)[:, None])
        choices = below(numbers, _CHOICES).reshape(seeds, tries, len(keys))
        for index, walls in enumerate(make_mazes(keys, size)):
            chosen = choices[:, :, index].tolist()
            cases.append({"size": size, "seeds": cells[:, index].tolist(), "choices": chosen})
            expected.append(walls.astype(int).flatten().tolist())
    assert in_page(grow=cases)["grown"] == expected


def test_mazes_of_the_page_look_like_those_of_the_task():
    ours = make_mazes(SeedStream(3, "train").keys(0, 400), 15)
    page = np.array(in_page(mazes=[[seed, 15] for seed in range(400)])["mazes"])
    page = page.reshape(400, 15, 15)
    assert len({maze.tobytes() for maze in page}) > 390
    assert page[:, (0, -1)].all()
    assert not page[:, 1::2, 1::2].any()
    assert abs(page[:, 1:-1, 1:-1].mean() - ours[:, 1:-1, 1:-1].mean()) < 0.015


def test_the_page_asks_for_every_patch_that_mazes_have():
    walls = make_mazes(SeedStream(3, "train").keys(0, 300), 15)
    windows = np.lib.stride_tricks.sliding_window_view(walls, (3, 3), axis=(1, 2))
    ours = {tuple(patch) for patch in windows.reshape(-1, 9).astype(int).tolist()}
    page = [tuple(patch) for patch in in_page(patches=[15, 3])["patches"]]
    assert len(page) == len(set(page))
    assert len(ours - set(page)) <= 1  # what one maze in thousands has may be missing
    assert page[0] == (0,) * 9


def test_the_page_winds_as_the_spiral_does():
    letters = in_page(spiral=[9, 15])
    for size, text in zip((9, 15), letters["spiral"], strict=True):
        empty = np.zeros((1, size, size), bool)
        path = Spiral().path(SeedStream(0, "test").keys(0, 1), empty, (size - 2) ** 2)
        steps = np.diff(path[:, 0], axis=0).tolist()
        assert [letters["moves"][letter] for letter in text] == steps


def test_what_is_true_in_the_page_is_the_target_of_the_task():
    walks, expected = [], []
    for task in (
        Mapping(),
        Mapping(world=9, grid=12, queries=(5,)),
        Mapping(world=9, grid=12, motion="random", path_length=40),
    ):
        keys = SeedStream(5, "test").keys(0, 3)
        walls = make_mazes(keys, task.world)
        path = task._motion.path(keys, walls, task.episode_length)
        run = task.follow(keys, walls, path)
        for step in (task.episode_length // 2, task.episode_length - 1):
            batch = run.batch(step, step + 1, torch.tensor([0]))
            for index in range(3):
                if not batch.weight[0, 0, index]:
                    continue
                corner = task.grid // 2 - task.start
                inside = np.s_[corner : corner + task.world, corner : corner + task.world]
                target = batch.targets[0][0, index, 0].numpy()[inside]
                look = batch.inputs[0, index, 1].flatten().int().tolist()
                expected.append((target.astype(int).flatten().tolist(), look))
                walks.append({
                    "side": task.world, "view": task.fov, "size": task.queries[0],
                    "walls": walls[index].astype(int).flatten().tolist(),
                    "path": path[: step + 1, index].tolist(),
                    "patch": batch.queries[0][0, index, 1].flatten().int().tolist(),
                })  # fmt: skip
    found = in_page(walks=walks)["walks"]
    assert len(found) >= 14
    for walk, (places, look) in zip(found, expected, strict=True):
        assert walk["places"] == places
        assert walk["looks"][-1] == look


moves = st.lists(st.tuples(st.sampled_from("urdlx"), st.integers(1, 12)), min_size=1, max_size=5)
texts = st.lists(
    st.one_of(
        moves.map(lambda runs: "".join(f"{letter}{count}" for letter, count in runs)),
        st.lists(st.integers(0, 224), min_size=1, max_size=4).map(
            lambda cells: "w" + "_".join(map(str, cells))
        ),
        st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), min_size=1, max_size=3).map(
            lambda stamps: "e3_" + "_".join(f"{r}x{c}" for r, c in stamps)
        ),
    ),
    max_size=5,
).map("-".join)


@settings(max_examples=5)
@given(st.lists(texts, min_size=8, max_size=8))
def test_the_text_of_a_walk_is_a_walk_with_that_text(walks):
    first = in_page(texts=walks, task=TASK)["texts"]
    again = in_page(texts=[walk["text"] for walk in first], task=TASK)["texts"]
    assert again == first
    assert all(walk["whole"] for walk in first)


def test_a_walk_keeps_to_the_interior_and_draws_only_what_was_not_seen():
    start, edge, drawn = in_page(texts=["", "u20r3", "w16_112_0_17"], task=TASK)["texts"]
    assert start["agent"] == [7, 7]
    assert edge["agent"] == [1, 10]
    assert edge["steps"] == 24
    changed = np.flatnonzero(np.array(drawn["walls"]) != np.array(start["walls"])).tolist()
    assert changed == [16, 17]  # not the border, nor the cell that the agent stands on
    assert drawn["text"] == "w16_17"


def test_texts_that_are_no_walks_are_refused():
    wrong = ["q", "r-", "r2-w", "e3", "e3_1", "r99999", "r4000r4000", "w1_", "<b>", "w12345"]
    assert in_page(events=wrong)["events"] == [None] * len(wrong)
    assert in_page(events=["", "r3", "rdlu"])["events"] == [0, 3, 4]
