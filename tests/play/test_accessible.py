"""No serious accessibility fault, and nothing that sticks out of a phone's screen."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product

import pytest
from playing import Visit, until

pytestmark = pytest.mark.xdist_group("browser")

NPM = shutil.which("npm")
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 360, "height": 740}}


def drawn(page):
    """What a new size or scheme brings has been laid out and painted."""
    page.evaluate("() => new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)))")


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The text of axe-core, where npm can fetch it."""
    if NPM is None:
        pytest.skip("needs npm to fetch axe-core, and it is not installed")
    folder = tmp_path_factory.mktemp("axe")
    command = [NPM, "install", "--no-audit", "--no-fund", "--silent", "axe-core@4"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not fetch axe-core within 90 s")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.is_file():
        pytest.skip("npm could not fetch axe-core")
    return script.read_text()


def test_axe_finds_no_serious_fault(visit, axe):
    page = visit.open_still("r2d2")
    page.evaluate(axe + "; void 0")
    serious = []
    for (size, view), scheme in product(SIZES.items(), ("light", "dark")):
        page.set_viewport_size(view)
        page.emulate_media(color_scheme=scheme)
        until(page, f"document.documentElement.dataset.theme === '{scheme}'")
        drawn(page)
        serious += [
            (size, scheme, fault["id"], [node["html"][:120] for node in fault["nodes"]])
            for fault in page.evaluate("async () => (await axe.run()).violations")
            if fault["impact"] in ("serious", "critical")
        ]
    assert serious == []


def test_nothing_sticks_out_at_the_side(visit):
    narrow, *wider = 320, 390, 768, 1024, 1280, 1920
    visit.page.set_viewport_size({"width": narrow, "height": 800})
    page = visit.open_still()
    until(page, "document.getElementById('world').width > 1")
    found = {}
    for width in (narrow, *wider, 390):  # loaded narrow, made wide, made narrow again
        page.set_viewport_size({"width": width, "height": 800})
        drawn(page)
        found[width] = max(
            found.get(width, 0), page.evaluate("document.documentElement.scrollWidth")
        )
    assert [width for width, needed in found.items() if needed > width] == []


def test_a_finger_walks_asks_and_erases(chromium, site):
    with Visit(chromium, site, viewport=SIZES["phone"], has_touch=True, is_mobile=True) as visit:
        page = visit.open_still("rdl2u2r3d3")
        settled = "async () => { await mgmem.jobs; await mgmem.asked(); return true; }"
        page.tap("[data-move=r]")
        page.evaluate(settled)
        assert page.evaluate("mgmem.walk.toText()") == "rdl2u2r3d3r"
        box = page.locator("#world").bounding_box()
        page.touchscreen.tap(
            box["x"] + box["width"] * 7.5 / 15, box["y"] + box["height"] * 7.5 / 15
        )
        page.evaluate(settled)
        assert page.evaluate("mgmem.question.place") == [7, 7]
        page.get_by_label("erase memory", exact=True).check()
        page.locator("#memory").scroll_into_view_if_needed()
        box = page.locator("#memory").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.evaluate(settled)
        assert "-e5_" in page.evaluate("mgmem.walk.toText()")
    assert visit.complaints == []
