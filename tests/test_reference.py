"""The reference pages are complete; ``tests/test_documents.py`` holds them against the code."""

from __future__ import annotations

import ast
import re
import typing

import pytest

from docs.generator.error_page import errors
from docs.generator.event_page import events
from docs.generator.metric_page import families, families_of_workers
from docs.generator.pages import FOLDER, pages
from docs.generator.sources import PLACEHOLDER, Source
from proxy.settings.table import ROWS, SettingRow
from tests.support.proxy import ProxyProcess


def test_nothing_else_is_among_them() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(pages())


def is_number(row: SettingRow) -> bool:
    kinds = {row.type, *typing.get_args(row.type)}
    return bool({int, float} & {*kinds, *(inner for kind in kinds for inner in typing.get_args(kind))})


def test_every_number_has_a_unit_and_nothing_else_has() -> None:
    assert [row.name for row in ROWS.values() if bool(row.unit) != is_number(row)] == []


def test_metrics_are_those_of_a_running_proxy(proxy: ProxyProcess) -> None:
    scraped = re.findall(r"^# TYPE (tsproxy_\w+) (\w+)$", proxy.status("/metrics")[1], re.MULTILINE)
    listed = [(each.name + "_total" * (each.type == "counter"), each.type) for each in families()]
    assert sorted(scraped) == sorted(listed)


def test_metrics_that_are_explained_exist() -> None:
    """``docs/operating.md`` says of some of them more than the page."""
    text = (FOLDER.parent / "operating.md").read_text()
    names = {each.name for each in (*families(), *families_of_workers())}
    named = {re.sub(r"_(total|sum|count)$", "", name) for name in re.findall(r"`(tsproxy_[a-z_]+)", text)}
    assert named - names == set()


def test_every_event_has_its_name() -> None:
    """Only the last line of a program that cannot go on has a text of its own."""
    assert [name for name in events() if PLACEHOLDER in name] == [PLACEHOLDER]
    assert events()[PLACEHOLDER].modules == {"proxy.process.fatal": None}


def test_events_of_a_running_proxy_are_listed(proxy: ProxyProcess) -> None:
    assert {"starting", "ready"} <= set(events())
    assert events()["starting"].levels == {"info"}
    assert {"pid", "version"} <= events()["starting"].fields.keys()
    assert "starting" in proxy.log


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (2, "'…' must be present and contain a valid BSON UTC datetime value"),
        (6, "the connection to the backend was lost: …"),
        (16, "Write batch sizes must be between 1 and 100000. Got … operations."),
        (72, "Cannot perform an upsert on a time-series collection"),
        (89, "the backend did not answer in time"),
        (462, "limit of … connections reached for user … (user_limits)"),
    ],
)
def test_errors_are_found_however_they_are_made(code: int, text: str) -> None:
    assert (code, text) in errors()


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("'a' 'b'", {"ab"}),
        ("f'x {y} {Z}'", {"x … 7"}),
        ("'a' if y else B", {"a", "b"}),
        ("'a' + unknown()", {"a…"}),
        ("two(1)", {"2", "b"}),
        ("y", {"…"}),
        ("C[0]", {"first"}),
        ("D", {"second"}),
    ],
)
def test_texts_of_expressions(code: str, texts: set[str]) -> None:
    module = ast.parse(
        "Z = 7\nB = 'b'\nC = ('first', 2)\nE, D = 1, 'second'\n"
        "def two(x):\n    if x:\n        return '2'\n    return B\n"
    )
    expression = ast.parse(code, mode="eval").body
    assert set(Source("example", module).texts(expression)) == texts
