"""The page in a real browser: walk, ask, erase, draw, go back, share."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from playing import Visit, half, until

from mgmem.experiments import find
from mgmem.experiments.records import shipped_weights
from mgmem.nn.fit import fitted
from mgmem.training.weights import fill, load_weights

pytestmark = pytest.mark.xdist_group("browser")  # one at a time: each wants the whole machine

SPIRAL = "rdl2u2r3d3l4u4r5d5l6u6"
WHOLE = SPIRAL + "r7d7l8u8r9d9l10u10r11d11l12u12r12"


def now(page, what):
    """Something of the moment shown."""
    return page.evaluate(f"() => {{ const now = mgmem.now; return {what}; }}")


def settled(page):
    """Everything asked for has happened."""
    page.evaluate("async () => { await mgmem.jobs; await mgmem.asked(); }")


def cell_of(page, canvas, row, column, cells):
    """The middle of a cell on the screen."""
    box = page.locator(canvas).bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / cells, box["y"] + (row + 0.5) * box[
        "height"
    ] / cells


def click_cell(page, canvas, row, column, cells):
    page.mouse.click(*cell_of(page, canvas, row, column, cells))
    settled(page)


@pytest.fixture(scope="module")
def tab(launch, site):
    """A page that is opened once, for tests that need no fresh one."""
    with Visit(launch(), site, viewport={"width": 1280, "height": 900}) as made:
        made.open_still()
        yield made


@pytest.fixture
def walked(tab):
    """Gives the page with a walk begun anew: what was asked and erased before is gone."""

    def begin(walk, maze=7):
        tab.page.evaluate("(given) => mgmem.begin(...given)", [maze, walk])
        settled(tab.page)
        return tab.page

    yield begin
    assert tab.complaints == []


def test_it_walks_by_itself_at_once_and_answers(visit):
    page = visit.open()
    until(page, "mgmem.now.steps > 4")
    assert page.locator("body.playing").count() == 1
    until(page, "document.getElementById('score-asked').textContent > 2")
    page.keyboard.press("Space")
    settled(page)
    assert now(page, "now.agent") != [7, 7]
    assert page.evaluate("location.hash").startswith("#maze=")
    assert "Seen in" in page.inner_text("#verdict")


def test_arrow_keys_and_buttons_walk_and_stop_what_plays(visit):
    page = visit.open()
    page.keyboard.press("ArrowUp")
    settled(page)
    assert page.locator("body.playing").count() == 0
    row, column = now(page, "now.agent")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert now(page, "now.agent") == [row, column - 2]
    page.evaluate("document.querySelector('[data-move=d]').click()")
    settled(page)
    assert now(page, "now.agent") == [row + 1, column - 2]


def test_dragging_walks_and_a_click_on_the_unknown_leads_there(visit):
    page = visit.open_still()
    page.mouse.move(*cell_of(page, "#world", 7, 8, 15))
    page.mouse.down()
    page.mouse.move(*cell_of(page, "#world", 7, 11, 15), steps=4)
    until(page, "String(mgmem.now.agent) === '7,11'")
    page.mouse.up()
    click_cell(page, "#world", 12, 11, 15)
    until(page, "String(mgmem.now.agent) === '12,11'")


def test_the_page_in_the_browser_computes_the_numbers_of_pytorch(walked):
    page = walked(WHOLE, maze=123)
    seen = page.evaluate(
        """async () => {
          const { moments } = mgmem.walk;
          const logits = await mgmem.engine.ask(moments.at(-1).state, -1, moments[60].patch);
          return JSON.stringify({
            walk: moments.map((m) => [[...m.patch], m.agent]),
            states: [0, 84, 168].map((t) => [...moments[t].state]),
            logits: [...logits], patch: [...moments[60].patch],
          });
        }"""
    )
    seen = json.loads(seen)
    assert len(seen["walk"]) == 169
    task, model = find("mapping-15-small").build()
    path = shipped_weights("mapping-15-small")
    fill(model, load_weights(path).tensors, path)
    model = half(model.eval()).double()
    patches = torch.tensor([patch for patch, _ in seen["walk"]]).double().view(-1, 1, 3, 3)
    places = torch.tensor([place for _, place in seen["walk"]]).double() - task.start
    places = (places * 2 / task.grid).float().double()
    where = places[:, :, None, None].expand(-1, 2, 3, 3)
    inputs = torch.cat([1 - patches, patches, where], 1)[:, None]
    wall = torch.tensor(seen["patch"]).double().view(1, 3, 3)
    query = torch.cat([1 - wall, wall, torch.zeros(2, 3, 3)])[None, None]
    with torch.no_grad():
        state, start = None, 0
        for step, found in zip((0, 84, 168), seen["states"], strict=True):
            x = fitted(inputs[start : step + 1], model.memory.input, model.memory.base, model.fit)
            _, state = model.memory(x, state)
            start = step + 1
            grids = [g.flatten() for part in "hc" for s in state.layers for g in getattr(s, part)]
            np.testing.assert_allclose(found, torch.cat(grids).numpy(), atol=1e-4, rtol=0)
        (answers,), _ = model(inputs, queries=(query,), times=torch.tensor([168]))
    expected = answers.flatten().sigmoid().numpy()
    found = torch.tensor(seen["logits"]).sigmoid().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_click_asks_and_the_places_are_right(walked):
    page = walked(SPIRAL)
    click_cell(page, "#world", 6, 6, 15)
    answer = page.evaluate(
        "(({ hits, wanted, said }) => [hits, wanted, said])(mgmem.question.answer)"
    )
    assert answer[0] == answer[1] == answer[2] > 0
    assert "All found, none wrong" in page.inner_text("#verdict")
    assert page.get_attribute("#follow", "aria-pressed") == "false"
    page.click("#follow")
    settled(page)
    assert page.evaluate("mgmem.question.place") is None
    assert page.inner_text("#score-precision") == "100 %"


def test_a_painted_patch_that_is_nowhere_is_not_found(walked):
    page = walked(SPIRAL)
    for button in page.locator("#patch button").all():
        if button.get_attribute("aria-pressed") == "false":
            button.click()
            settled(page)
    assert page.evaluate("[...mgmem.question.answer.patch]") == [1] * 9
    assert "It has not seen this. It marks nothing: right." in page.inner_text("#verdict")


def test_what_is_erased_is_forgotten_and_undone(visit):
    page = visit.open_still(SPIRAL)
    before = now(page, "[...now.state]")
    page.get_by_label("erase memory", exact=True).check()
    page.mouse.move(*cell_of(page, "#memory", 9, 9, 24))
    page.mouse.down()
    page.mouse.move(*cell_of(page, "#memory", 14, 14, 24), steps=8)
    page.mouse.up()
    settled(page)
    after = np.array(now(page, "[...now.state]"))
    changed = int((after != np.array(before)).sum())
    assert 200 < changed < len(before) // 2
    assert not after[after != np.array(before)].any()
    page.click("#back")
    settled(page)
    assert now(page, "[...now.state]") == before
    page.click("#forward")
    settled(page)
    assert now(page, "[...now.state]") == after.tolist()
    assert "-e5_" in page.evaluate("mgmem.address()")


def recall(page):
    """Share of places found over questions for everything that the agent stood on."""
    return page.evaluate(
        """async () => {
          const { now, engine, question, walk } = mgmem;
          let [hits, wanted] = [0, 0];
          for (const { patch } of walk.moments.filter((_, i) => i % 5 === 0)) {
            const logits = await engine.ask(now.state, `recall ${walk.at}`, patch);
            const answer = question.judged(patch, logits, now);
            hits += answer.hits;
            wanted += answer.wanted;
          }
          return hits / wanted;
        }"""
    )


def test_an_emptied_memory_finds_next_to_nothing(walked):
    page = walked(SPIRAL)
    assert recall(page) > 0.97
    until(page, "mgmem.belief.fresh === 1")
    page.evaluate("mgmem.erase([[12, 12]], 25)")
    settled(page)
    assert not any(now(page, "[...now.state]"))
    assert recall(page) < 0.3
    assert "All found" not in page.inner_text("#verdict")
    until(page, "parseFloat(document.getElementById('known-said').textContent) < 50")


def test_walls_are_drawn_only_where_it_has_not_been(visit):
    page = visit.open_still()
    page.get_by_label("draw walls", exact=True).check()
    before = now(page, "[...now.walls]")
    page.mouse.move(*cell_of(page, "#world", 2, 2, 15))
    page.mouse.down()
    page.mouse.move(*cell_of(page, "#world", 2, 5, 15), steps=8)
    page.mouse.up()
    settled(page)
    changed = np.flatnonzero(np.array(before) != np.array(now(page, "[...now.walls]"))).tolist()
    assert changed == [32, 33, 34, 35]
    click_cell(page, "#world", 7, 7, 15)  # under the agent's eyes
    click_cell(page, "#world", 0, 3, 15)  # the border
    assert page.evaluate("mgmem.walk.at") == 2
    page.keyboard.press("Backspace")
    settled(page)
    assert now(page, "[...now.walls]") == before


def test_the_slider_goes_back_in_time_and_a_step_from_there_starts_another_future(walked):
    page = walked("r5")
    assert page.get_attribute("#time", "max") == "5"
    page.evaluate(
        "() => { const t = document.getElementById('time'); t.value = 2; "
        "t.dispatchEvent(new Event('input')); }"
    )
    settled(page)
    assert now(page, "now.agent") == [7, 9]
    page.keyboard.press("ArrowDown")
    settled(page)
    assert page.evaluate("mgmem.walk.toText()") == "r2d"
    assert page.get_attribute("#time", "max") == "3"


def test_a_link_restores_the_same_walk(visit, chromium, site):
    page = visit.open_still("r3d2-w31_32-e5_10x10_11x11-l2x")
    settled(page)
    first = now(page, "[[...now.state], [...now.walls], now.agent, now.steps, location.hash]")
    with Visit(chromium, site) as second:
        other = second.open(first[-1])
        again = now(other, "[[...now.state], [...now.walls], now.agent, now.steps, location.hash]")
        assert again == first
        assert now(other, "now.steps") == 9


def test_a_broken_link_starts_a_walk_of_its_own(visit):
    for rest in ("#maze=x", "#maze=1&walk=%3Cscript%3E", "#walk=r9", "#maze=1&walk=r99999"):
        visit.page.goto("about:blank")  # a link is read when the page is opened
        page = visit.open(rest)
        until(page, "mgmem.now.steps > 1")


def test_the_map_is_read_out_of_the_memory(visit):
    page = visit.open_still(SPIRAL)
    until(page, "mgmem.belief.fresh === 1")
    page.wait_for_timeout(300)
    share = float(page.inner_text("#known-said").split(" %")[0])
    assert share > 98
    page.get_by_label("a linear probe", exact=True).check()
    until(page, "document.getElementById('known-said').textContent[0] !== '1'")
    assert float(page.inner_text("#known-said").split(" %")[0]) > 70


def test_every_layer_and_level_can_be_looked_at(visit):
    page = visit.open_still(SPIRAL)
    tiles = page.locator("#mesh button")
    assert tiles.count() == 14
    page.get_by_role("button", name="Layer 3, 12 by 12 cells").click()
    assert page.inner_text("#memory-said").startswith("layer 3, 12×12, h")
    page.get_by_label("c, memory cells", exact=True).check()
    page.get_by_label("mean", exact=True).check()
    assert page.inner_text("#memory-said") == "layer 3, 12×12, c, mean of channels"
    page.get_by_role("button", name="Layer 3, 12 by 12 cells").hover()
    assert "reads 2 grids" in page.inner_text("#mesh-said")  # itself and, of layer 2, 6x6


def test_a_pointer_made_of_keys_asks_draws_and_erases(visit):
    page = visit.open_still(SPIRAL)
    page.focus("#world")
    for _ in range(2):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    settled(page)
    place = page.evaluate("mgmem.question.place")
    assert place == [page.evaluate("mgmem.now.agent[0]") + 2, page.evaluate("mgmem.now.agent[1]")]
    assert page.get_attribute("#verdict", "aria-live") == "polite"
    page.keyboard.press("e")
    settled(page)
    assert "-e5_" in page.evaluate("mgmem.walk.toText()")
    for _ in range(14):
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("w")
    settled(page)
    assert page.evaluate("mgmem.walk.toText()").endswith("-w28")
    page.keyboard.press("n")
    until(page, "mgmem.walk.seed !== 7")


def test_a_random_walk_stays_where_walls_are(visit):
    page = visit.open_still()
    page.get_by_label("random", exact=True).check()
    page.evaluate("mgmem.speed = 60; document.getElementById('play').click()")
    until(page, "mgmem.now.steps > 30")
    page.keyboard.press("Space")
    settled(page)
    entered = page.evaluate(
        """mgmem.walk.moments.slice(2).filter(({ agent: [row, column], event, walls }) =>
             event.letter !== "x" && walls[row * 15 + column]).length"""
    )
    assert entered == 0
    assert "x" in page.evaluate("mgmem.walk.toText()")


def test_once_loaded_it_needs_no_network(visit):
    page = visit.open_still()
    visit.context.set_offline(True)
    asked = len(visit.requests)
    page.click("#fresh")
    until(page, "mgmem.walk.seed !== 7 && mgmem.now?.steps > 3")
    page.keyboard.press("ArrowDown")
    settled(page)
    assert visit.requests[asked:] == []


def test_light_and_dark_follow_the_system_until_chosen(visit):
    page = visit.open_still()
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "light"
    page.emulate_media(color_scheme="dark")
    until(page, f"{theme} === 'dark'")
    page.click("#theme")
    assert page.evaluate(theme) == "light"
    page.reload()
    page.wait_for_selector("body.awake")
    assert page.evaluate(theme) == "light"


def test_who_wants_less_motion_gets_a_page_that_stands_still(visit):
    visit.page.emulate_media(reduced_motion="reduce")
    page = visit.open()
    page.wait_for_timeout(500)
    assert now(page, "now.steps") == 1
    page.keyboard.press("ArrowRight")
    settled(page)
    assert now(page, "now.agent") == [7, 8]


def test_a_step_and_an_answer_take_less_than_50_ms(walked):
    page = walked(SPIRAL)
    until(page, "mgmem.belief.fresh === 1")
    times = page.evaluate(
        """async () => {
          const { now, engine } = mgmem;
          const times = [];
          for (let i = 0; i < 40; i++) {
            const start = performance.now();
            const state = await engine.step(now.state, now.patch, [0, i % 5]);
            await engine.ask(state, `time ${i}`, now.patch);
            times.push(performance.now() - start);
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    assert times[0] < 50  # the best: whatever else this machine is doing is not the page's
    print(f"a step and an answer: median {times[20]:.1f} ms, best {times[0]:.1f} ms")
