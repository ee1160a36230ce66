"""The page for everybody: small windows, both colour schemes, the keyboard, assistive programs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.page.browser import DESK, PHONE, Scheme, Visit, visiting
from tests.support.proxy import ProxyProcess

SETTLED = "document.querySelectorAll('#ways tr').length > 3 && document.querySelectorAll('#slow li').length > 0"


@pytest.mark.parametrize("size", [(320, 640), PHONE, (768, 1024), DESK, (1920, 1080)])
def test_nothing_has_to_be_scrolled_sideways(browser: Browser, loaded: ProxyProcess, size: tuple[int, int]) -> None:
    with visiting(browser, loaded, size=size) as visit:
        visit.wait(SETTLED)
        visit.page.locator("#slow summary").first.click()
        assert visit.overflow() == []


def test_both_colour_schemes(browser: Browser, loaded: ProxyProcess) -> None:
    light: dict[Scheme, float] = {}
    for scheme in ("light", "dark"):
        with visiting(browser, loaded, scheme=scheme) as visit:
            color = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
            light[scheme] = sum(int(part) for part in re.findall(r"\d+", color)[:3]) / 765
    assert light["light"] > 0.9
    assert light["dark"] < 0.15


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK])
def test_an_accessibility_check_finds_nothing(
    browser: Browser, loaded: ProxyProcess, scheme: Scheme, size: tuple[int, int]
) -> None:
    with visiting(browser, loaded, scheme=scheme, size=size) as visit:
        visit.wait(SETTLED)
        visit.page.locator("#slow summary").first.click()
        assert visit.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["attention", "problem", "unreachable"])
def test_the_other_states_have_enough_contrast(
    browser: Browser, loaded: ProxyProcess, scheme: Scheme, state: str
) -> None:
    with visiting(browser, loaded, scheme=scheme) as visit:
        visit.wait(SETTLED)
        visit.page.get_by_role("button", name="Pause updates").click()
        visit.page.evaluate("(state) => { document.body.dataset.state = state; }", state)
        assert visit.violations() == []


def test_the_keyboard_reaches_everything_in_order(browser: Browser, loaded: ProxyProcess) -> None:
    with visiting(browser, loaded) as visit:
        visit.wait(SETTLED)
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.id") == "pause"
        # So that the slow commands stay the same.
        visit.page.keyboard.press("Space")
        assert visit.page.get_attribute("#pause", "aria-pressed") == "true"
        count = visit.page.locator("summary").count()
        reached = []
        for _ in range(count + 3):
            visit.page.keyboard.press("Tab")
            reached.append(visit.page.evaluate("document.activeElement.tagName"))
            outline = visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", "what has the focus is visible"
        assert reached == ["SUMMARY"] * count + ["A"] * 3
        visit.page.locator("summary").first.focus()
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("details[open]").count() == 1


def test_charts_have_words(browser: Browser, loaded: ProxyProcess) -> None:
    with visiting(browser, loaded) as visit:
        visit.wait(SETTLED)
        labels = visit.page.evaluate("[...document.querySelectorAll('svg.chart')].map((each) => each.ariaLabel)")
        assert len(labels) >= 8
        for label in labels:
            assert re.search(r" in the last five minutes: from .+ to .+, now .+|: nothing yet$", label), label


def drawn(visit: Visit, points: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What the page draws for these points, whose field ``v`` is the value."""
    found: dict[str, list[str]] = visit.page.evaluate(
        """async (points) => {
          const { draw } = await import("./page/charts.js");
          const svg = document.getElementById("requests-chart").cloneNode();
          draw(svg, points, (point) => point.v, "Things", String, (point) => point.v === 0);
          const all = (selector, name) => [...svg.querySelectorAll(selector)].map((each) => each.getAttribute(name));
          return {lines: all(".line", "points"), bad: all(".bad", "width"), label: [svg.ariaLabel]};
        }""",
        points,
    )
    return found


def point(at_seconds: float, value: float | None, seconds: float = 2) -> dict[str, Any]:
    return {"at": at_seconds * 1000, "seconds": seconds, "v": value}


def test_charts_draw_each_point_where_it_belongs(browser: Browser, loaded: ProxyProcess) -> None:
    """300 units are five minutes; the greatest value is at 4 and 0 at 58."""
    with visiting(browser, loaded) as visit:
        steady = drawn(visit, [point(900 + 2 * number, 10 * (number % 2)) for number in range(3)])
        assert steady["lines"] == ["294,58 296,58 298,4 300,58"]
        assert steady["bad"] == ["2", "2"]
        assert steady["label"] == ["Things in the last five minutes: from 0 to 10, now 0"]
        # Where values are missing, or the page was away, there is no line; a long time is a step, not a slope.
        assert len(drawn(visit, [point(900, 1), point(902, None), point(904, 1)])["lines"]) == 2
        assert len(drawn(visit, [point(900, 1), point(950, 1)])["lines"]) == 2
        assert drawn(visit, [point(900, 5), point(1_100, 10, seconds=200)])["lines"] == ["98,31 100,31 100,4 300,4"]
        assert drawn(visit, [])["label"] == ["Things: nothing yet"]
        # What is older than five minutes begins at the edge.
        assert drawn(visit, [point(1_000, 10, seconds=1_000)])["lines"] == ["0,4 300,4"]


def test_without_scripts_the_page_says_where_the_numbers_are(browser: Browser, loaded: ProxyProcess) -> None:
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{loaded.status_port}/")
        assert "needs JavaScript" in page.inner_text("main")
    finally:
        context.close()
