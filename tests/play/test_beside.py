"""The DNC beside the memory: its files, what is refused, and the switch in a real browser."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from playing import SIZES, Visit, drawn, until
from test_site import refused, weights_of

from mgmem.cli import main
from mgmem.experiments.records import load_records, shipped_weights
from mgmem.play.beside import add_beside
from mgmem.play.serve import open_server
from mgmem.play.site import shipped_site
from mgmem.training.weights import load_weights

DNC = "mapping-15-dnc"
WALK = "rdl2u2r3"


@pytest.fixture(scope="module")
def files():
    """The page with the shipped DNC, as `mgmem play --beside mapping-15-dnc` has it."""
    return add_beside(shipped_site(), DNC, "mapping-15-small")


def test_the_command_adds_a_dnc_and_a_page_without_it_is_small_again(tmp_path, files):
    out = tmp_path / "page"
    assert main(["play", "--beside", DNC, "--out", str(out)]) == 0
    written = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert written == files
    assert files.keys() - shipped_site().keys() == {"beside.json", "beside.bin"}
    assert main(["play", "--out", str(out)]) == 0
    written = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert written == shipped_site()
    assert sum(map(len, written.values())) < 1_000_000


def test_the_page_knows_of_it_without_loading_it(files):
    memory, shipped = json.loads(files["memory.json"]), json.loads(shipped_site()["memory.json"])
    size = len(files["beside.json"]) + len(files["beside.bin"])
    assert memory.pop("beside") == {"name": DNC, "bytes": size}
    assert memory == shipped


def test_its_weights_are_halves_and_its_figures_those_recorded(files):
    header = json.loads(files["beside.json"])
    weights = load_weights(shipped_weights(DNC)).tensors
    names = {"head.weight": "heads.0.weight", "from_past.weight": "core.from_past.weight"}
    for entry in header["tensors"]:
        assert entry["kind"] == "f2"
        if entry["name"] in names:
            count = np.prod(entry["shape"])
            stored = np.frombuffer(files["beside.bin"], "<f2", count, entry["offset"])
            ours = weights[names[entry["name"]]].numpy().astype(np.float16)
            np.testing.assert_array_equal(stored.reshape(entry["shape"]), ours)
    for about, name in ((header["about"], DNC), (header["memory"], "mapping-15-small")):
        checksum = load_weights(shipped_weights(name)).sha256
        record = next(record for record in load_records() if record.weights == checksum)
        assert about["trained"]["f"] == record.estimate().value
        assert about["trained"]["updates"] == record.updates


def test_weights_that_were_never_scored_have_no_figure(tmp_path):
    path = weights_of(DNC, tmp_path)
    header = json.loads(add_beside(shipped_site(), str(path), None)["beside.json"])
    assert header["about"]["trained"] is header["memory"]["trained"] is None


def test_what_does_not_fit_beside_the_memory_is_refused(tmp_path, capsys):
    out = tmp_path / "page"
    asked_more = weights_of(DNC, tmp_path, {"queries": "5"})
    for what, said in (
        (weights_of("mapping-15-lstm", tmp_path), "that is no DNC"),
        ("mapping-15-small", "that is no DNC"),
        ("recall-10-dnc", "was trained to recall"),
        (weights_of("mapping-25-dnc", tmp_path), "a world of 25"),
        (asked_more, "has questions of 5, but mapping-15-small has questions of 3"),
        ("mapping-15-dcn", "did you mean"),
        (tmp_path, "best.safetensors"),
    ):
        assert said in refused(capsys, "play", "--beside", what, "--out", out)
    assert not out.exists()


@pytest.fixture(scope="module")
def both(files):
    with open_server(files, 8420) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def settled(page):
    """Everything asked for has happened, and the DNC has caught up with all questions."""
    page.evaluate("async () => { await mgmem.jobs; await mgmem.asked(); }")
    until(page, "mgmem.beside?.answer && mgmem.question.log.every((entry) => entry.beside)")


def answered(page):
    """Step, places and chances of the DNC's answer."""
    return page.evaluate(
        "(({ moment, places, chances }) => [moment.steps, [...places], [...chances]])"
        "(mgmem.beside.answer)"
    )


@pytest.mark.xdist_group("browser")
def test_switched_on_both_answer_on_the_same_walk_and_a_link_restores_it(chromium, both):
    with Visit(chromium, both, viewport=SIZES["desktop"]) as visit:
        page = visit.open_still(WALK)
        page.click("#back")
        page.evaluate("async () => { await mgmem.jobs; await mgmem.asked(); }")
        assert not [url for url in visit.requests if "beside" in url or "dnc" in url]
        page.focus("#beside-on")
        page.keyboard.press("Space")
        settled(page)
        assert page.get_by_role("switch", name="the DNC beside it").is_checked()
        assert page.inner_text("#both-asked").startswith("Every question so far: 2,")
        assert "F 0.44" in page.inner_text("#beside-about")
        assert "500 slots of 16 numbers" in page.inner_text("#slots-said")

        page.evaluate("mgmem.askAt([7, 7])")
        settled(page)
        before = answered(page)
        assert before[:2] == page.evaluate(
            "(({ moment, places }) => [moment.steps, [...places]])(mgmem.question.answer)"
        )
        assert page.inner_text("#beside-verdict").startswith("The DNC: Seen in")
        page.evaluate("mgmem.erase([[12, 12]], 5)")
        settled(page)
        assert answered(page) == before  # what is erased is the other's
        page.evaluate("mgmem.goTo(2)")
        settled(page)
        assert answered(page)[0] == 3
        page.evaluate("mgmem.goTo(99)")
        settled(page)
        assert answered(page) == before
        page.evaluate("mgmem.follow()")
        settled(page)
        shown = [*answered(page), page.evaluate("mgmem.address()")]
        assert shown[-1].endswith("&beside=on")
        with Visit(chromium, both, viewport=SIZES["desktop"]) as second:
            other = second.open(shown[-1])
            settled(other)
            assert [*answered(other), other.evaluate("mgmem.address()")] == shown

        page.click("#beside-switch")
        assert page.locator("#beside").is_hidden()
        page.keyboard.press("Escape")
        page.evaluate("mgmem.step('d')")
        page.evaluate("async () => { await mgmem.jobs; await mgmem.asked(); }")
        assert page.evaluate("mgmem.question.log.at(-1).beside") is None
        assert "beside" not in page.evaluate("mgmem.address()")
    assert visit.complaints == second.complaints == []


@pytest.mark.xdist_group("browser")
def test_with_the_dnc_axe_finds_no_serious_fault_and_nothing_sticks_out(chromium, both, axe):
    with Visit(chromium, both) as visit:
        page = visit.open(f"#maze=7&walk={WALK}&beside=on")
        settled(page)
        page.evaluate(axe + "; void 0")
        for size, scheme in (("desktop", "light"), ("phone", "dark")):
            page.set_viewport_size(SIZES[size])
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # nothing in between
            until(page, f"document.documentElement.dataset.theme === '{scheme}'")
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
            serious = [
                (size, fault["id"], [node["html"][:120] for node in fault["nodes"]])
                for fault in page.evaluate("async () => (await axe.run()).violations")
                if fault["impact"] in ("serious", "critical")
            ]
            assert serious == []
    assert visit.complaints == []


@pytest.mark.xdist_group("browser")
def test_a_page_without_a_dnc_has_no_switch_and_asks_for_no_file_of_it(visit):
    page = visit.open(f"#maze=7&walk={WALK}&beside=on")
    assert page.locator("#beside-switch").is_hidden()
    assert not [url for url in visit.requests if "beside" in url]
    assert "beside" not in page.evaluate("mgmem.address()")
