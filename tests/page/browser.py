"""The status page in a headless Chromium that reports everything that goes wrong in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.node import modules
from tests.support.proxy import ProxyProcess

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
"""Containers often run as root, where Chromium has no sandbox; nothing is asked of the network."""
PHONE = (360, 740)
DESK = (1180, 900)
PATIENCE_SECONDS = 90
"""For whatever is waited for; the machine may be busy."""
HOSTILE = '<img src=x onerror="document.title=1">'
"""A name that a client may choose."""
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""

Scheme = Literal["light", "dark"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of this machine, with an empty profile."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no Chromium found: install the package chromium, for example with apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One open page. ``troubles``: console messages, errors of scripts, and requests to anywhere else."""

    def __init__(self, page: Page, proxy: ProxyProcess) -> None:
        self.page = page
        self.proxy = proxy
        self.url = f"http://127.0.0.1:{proxy.status_port}/"
        self.troubles: list[str] = []
        self.may_be_away = False
        """Whether the proxy is stopped in between, so that requests fail."""
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", lambda message: self._trouble(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._trouble(str(error)))
        page.on("request", lambda request: self._requested(request.url))

    def _trouble(self, text: str) -> None:
        if not (self.may_be_away and "net::ERR_CONNECTION" in text):
            self.troubles.append(text)

    def _requested(self, url: str) -> None:
        if not url.startswith((self.url, "data:")):
            self.troubles.append(f"requested {url}")

    def open(self) -> None:
        """Load the page, and wait until it shows numbers."""
        self.page.goto(self.url)
        self.page.wait_for_selector("body:not([data-state=loading])")

    def text(self, selector: str) -> str:
        """The text that is shown there."""
        return self.page.inner_text(selector)

    def wait(self, expression: str, argument: Any = None, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the expression of the page is true."""
        # Not ``wait_for_function``, which the policy of the page forbids: it makes code from text.
        ends = self.page.evaluate("performance.now()") + seconds * 1000
        while not self.page.evaluate(expression, argument):
            assert self.page.evaluate("performance.now()") < ends, f"never true: {expression}"
            self.page.wait_for_timeout(50)

    def state(self) -> str:
        """What the headline says by its colour."""
        return str(self.page.get_attribute("body", "data-state"))

    def wait_for_state(self, state: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the headline says this."""
        self.page.wait_for_selector(f"body[data-state={state}]", timeout=seconds * 1000)

    def overflow(self) -> list[str]:
        """What is wider than the window; empty if nothing has to be scrolled sideways."""
        found: list[str] = self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
              [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth)
                .map((each) => `${each.tagName} ${each.id} ${each.className}`)"""
        )
        return found

    def violations(self) -> list[str]:
        """What axe-core says against the page, in words."""
        script = (modules(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text()
        self.page.evaluate(script)
        found = self.page.evaluate(
            """() => axe.run(document, {runOnly: {type: "tag",
              values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}})"""
        )
        return [f"{each['id']}: {json.dumps([node['html'] for node in each['nodes']])}" for each in found["violations"]]


@contextmanager
def visiting(
    browser: Browser, proxy: ProxyProcess, *, scheme: Scheme = "light", size: tuple[int, int] = DESK
) -> Iterator[Visit]:
    """A visit in a window of its own; there must be no trouble at the end."""
    width, height = size
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    try:
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        visit = Visit(context.new_page(), proxy)
        visit.open()
        yield visit
        assert visit.troubles == []
    finally:
        context.close()
