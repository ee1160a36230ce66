"""All reference pages, and how they are written.

The pages are committed, so that they can be read and linked to without a build, and a change of the code shows in them.
``tests/test_reference.py`` fails if they are out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from docs.generator.admin_page import admin_page
from docs.generator.error_page import error_page
from docs.generator.event_page import event_page
from docs.generator.exit_page import exit_page
from docs.generator.metric_page import metric_page
from docs.generator.setting_page import setting_page

FOLDER = Path(__file__).parent.parent / "reference"


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": setting_page,
    "metrics.md": metric_page,
    "admin-commands.md": admin_page,
    "log-events.md": event_page,
    "exit-codes.md": exit_page,
    "error-codes.md": error_page,
}
"""What makes each page, by its file name."""


@cache
def pages() -> Mapping[str, str]:
    """The text of each page by its file name."""
    return {name: make() for name, make in PAGES.items()}


def write() -> None:
    """Write every page to ``docs/reference``."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
