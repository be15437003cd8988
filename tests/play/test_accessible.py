"""No serious accessibility fault, and nothing that sticks out of a phone's screen."""

from __future__ import annotations

from itertools import product

import pytest
from playing import SIZES, Visit, drawn, until

pytestmark = pytest.mark.xdist_group("browser")


def test_axe_finds_no_serious_fault(visit, axe):
    page = visit.open_still("r2d2")
    page.evaluate(axe + "; void 0")
    serious = []
    for (size, view), scheme in product(SIZES.items(), ("light", "dark")):
        page.set_viewport_size(view)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour in between
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
