"""The console in Chromium: each page of each kind of store, in light and dark, wide and narrow, by keyboard alone."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import Site
from tests.browser.served import axe_source, served
from tests.browser.visited import opened
from tests.console.test_changes import FORMS, Changing
from tests.world import World

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = pytest.mark.browser

WIDE: ViewportSize = {"width": 1000, "height": 900}
NARROW: ViewportSize = {"width": 400, "height": 800}
OPEN_DETAILS = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
AXE = """
async () => {
  const found = await axe.run(document, {resultTypes: ["violations", "incomplete"]});
  const why = node => node.any.concat(node.all).map(one => one.message).join("; ");
  // Text that a table's edge cuts has the colours that tests/console/test_style.py knows: axe cannot see them.
  const isCut = node => document.querySelector(node.target[0]).closest(".scroll") !== null;
  const left = found.incomplete.map(
    rule => ({id: rule.id, nodes: rule.nodes.filter(node => rule.id !== "color-contrast" || !isCut(node))}));
  return found.violations.concat(left).flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.html.slice(0, 160)} (${why(node)})`));
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, site: Site, scheme: Any) -> None:
    found: dict[str, str] = {}
    with opened(browser, site.address, color_scheme=scheme) as (page, _):
        for target in site.pages:
            page.goto(target)
            for what in _by_axe(page):
                found.setdefault(what, target)
    assert found == {}


def _by_axe(page: Page) -> list[str]:
    """Return what axe finds on a page with all details open, wide and narrow."""
    page.evaluate(OPEN_DETAILS)
    page.evaluate(axe_source())
    found: list[str] = []
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)
        # All of it is in sight: axe leaves text to a reader that the window's edge crosses.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": viewport["width"], "height": height})
        found += page.evaluate(AXE)
    return found


@pytest.mark.parametrize("bypass_csp", [False, True], ids=["as it is", "without its policy"])
def test_nothing_of_a_record_runs_and_no_other_host_is_asked(browser: Browser, site: Site, bypass_csp: bool) -> None:
    """Escaping holds it alone, too, should a browser not know the policy."""
    with opened(browser, site.address, bypass_csp=bypass_csp) as (page, noticed):
        for target in site.pages:
            page.goto(target)
            assert page.locator("script, img, iframe, object, embed, [onerror], [onload]").count() == 0, target
            assert noticed.events == [], target


def test_no_page_is_wider_than_its_window(browser: Browser, site: Site) -> None:
    found = {}
    with opened(browser, site.address) as (page, _):
        for target in site.pages:
            page.goto(target)
            page.evaluate(OPEN_DETAILS)
            for width in (320, 400, 640, 1000, 1800):
                page.set_viewport_size({"width": width, "height": 800})
                wide = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
                if wide > width:
                    found[target, width] = wide
    assert found == {}


CONTROLS = """
() => {
  const kinds = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const all = [...document.querySelectorAll(kinds)];
  window.controls = all.filter(one => one.checkVisibility());
  return window.controls.map(one => one.outerHTML.slice(0, 120));
}
"""
FOCUSED = """
() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {
    at: window.controls.indexOf(one),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.width > 0 && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight,
  };
}
"""


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_keyboard_reaches_all_and_shows_where_it_is(browser: Browser, site: Site, viewport: Any) -> None:
    """Also without scripts."""
    wrong = {}
    with opened(browser, site.address, viewport=viewport, java_script_enabled=False) as (page, _):
        for target in site.pages:
            page.goto(target)
            found = _tabbed(page)
            if found:
                wrong[target] = found
    assert wrong == {}


def _tabbed(page: Page) -> list[str]:
    """Return what is wrong once each control had its turn, in the order in which they stand."""
    controls = page.evaluate(CONTROLS)
    wrong = []
    for number, control in enumerate(controls):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused != {"at": number, "outlined": True, "seen": True}:
            wrong.append(f"{control}: {focused}")
    return wrong


def test_a_person_without_scripts_finds_a_record(browser: Browser, busy: World) -> None:
    with (
        served(busy.store, token="of-sixteen-signs-") as address,
        opened(browser, address, java_script_enabled=False) as (page, noticed),
    ):
        page.goto("/")
        page.get_by_label("Token").fill("of-sixteen-signs-")
        page.get_by_role("button", name="Open").click()
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Topics").click()
        page.get_by_label("Name has").fill("si")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("link", name="six", exact=True).click()
        page.get_by_label("As it was at entry").focus()
        page.keyboard.press("Home")
        page.get_by_role("button", name="Show").click()
        assert page.get_by_role("link", name="back to now").is_visible()
        page.get_by_role("link", name="Records").click()
        page.get_by_label("Key is").fill("key-5")
        page.get_by_label("As of entry").fill("")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("row").nth(1).get_by_role("rowheader").get_by_role("link").click()
        assert page.get_by_text('"n":').is_visible()
        assert noticed.events == []


FILLED_IN = {"/change/create-topic": {"Name": "new"}, "/change/alter-topic": {"Settings to set": "segment.rows=9"}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_person_makes_a_change(browser: Browser, form: str, scheme: Any) -> None:
    """On three pages: form, preview and result. axe finds nothing on them."""
    with (
        closing(Changing()) as world,
        served(world.store, allow_changes=True) as address,
        opened(browser, address, color_scheme=scheme) as (page, noticed),
    ):
        page.goto(form)
        for label, value in FILLED_IN.get(form.partition("?")[0], {}).items():
            page.get_by_label(label, exact=True).fill(value)
        before, found = world.entry(), []
        for button in ("form.change button", "button.does"):
            found += _by_axe(page)
            assert world.entry() == before
            page.locator(button).click()
        page.get_by_text("It was done.").wait_for()
        found += _by_axe(page)
        assert found == []
        assert noticed.events == []


@pytest.mark.parametrize(
    ("target", "head"), [("/groups", "Lag"), ("/group?id=readers", "Lag"), ("/topics/six", "Lag in this topic")]
)
def test_a_phone_shows_the_lag_without_scrolling_aside(browser: Browser, busy: World, target: str, head: str) -> None:
    with served(busy.store) as address, opened(browser, address, viewport=NARROW) as (page, _):
        page.goto(target)
        box = page.get_by_role("columnheader", name=head).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]


@pytest.mark.parametrize(("topic", "value"), [("six", '{"n":'), ("trips", "1000001")])
def test_a_phone_shows_a_value_before_the_filters(browser: Browser, busy: World, topic: str, value: str) -> None:
    with served(busy.store) as address, opened(browser, address, viewport=NARROW) as (page, _):
        page.goto(f"/topics/{topic}/records")
        box = page.get_by_text(value).first.bounding_box()
        assert box is not None
        assert box["x"] < NARROW["width"] - 40
        assert box["y"] + box["height"] < NARROW["height"]
        assert not page.get_by_label("Has text").is_visible()
        page.get_by_text("Choose and filter").click()
        assert page.get_by_label("Has text").is_visible()
        page.set_viewport_size(WIDE)
        page.reload()
        assert page.get_by_label("Has text").is_visible()
