from __future__ import annotations

from typing import Any

import pytest

from proxy.request.exchange import Exchange
from proxy.request.naming import database_of, documents_in, name_of, namespace_of, parsed_or_none, printable
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command, query
from tests.support.sessions import session


def exchange(raw: bytes) -> Exchange:
    return Exchange(session(), FakeClient(), Message.from_bytes(raw), Told())


@pytest.mark.parametrize("is_parsed", [True, False])
@pytest.mark.parametrize("flags", [0, op_msg.MORE_TO_COME])
def test_the_name_is_known_before_and_after_parsing(is_parsed: bool, flags: int) -> None:
    found = exchange(command({"find": "rows", "$db": "weather"}, flags=flags))
    if is_parsed:
        found.parsed()
    assert name_of(found) == "find"


@pytest.mark.parametrize("is_parsed", [True, False])
def test_the_database_is_the_field_and_nothing_like_it(is_parsed: bool) -> None:
    found = exchange(command({"find": "rows", "filter": {"$db": "no"}, "$db": "weather"}))
    if is_parsed:
        found.parsed()
    assert database_of(found) == "weather"
    assert database_of(exchange(command({"find": "rows"}))) == ""


def test_messages_of_other_kinds_have_neither() -> None:
    for raw in (query({"isMaster": 1}), command({})):
        assert (name_of(exchange(raw)), database_of(exchange(raw))) == ("", "")


def test_long_names_are_cut() -> None:
    assert len(name_of(exchange(command({"x" * 1_000: 1, "$db": "weather"})))) == 256


def test_what_cannot_be_parsed_has_no_command() -> None:
    raw = command({"find": "rows", "$db": "weather"})
    assert parsed_or_none(exchange(raw)) is not None
    assert parsed_or_none(exchange(command({"find": "rows"}))) is None


@pytest.mark.parametrize(
    ("document", "namespace"),
    [
        ({"find": "rows"}, "weather.rows"),
        ({"getMore": 5, "collection": "rows"}, "weather.rows"),
        ({"getMore": 5, "collection": 7}, "weather."),
        ({"ping": 1}, "weather."),
    ],
)
def test_the_namespace_of_a_get_more_is_that_of_its_cursor(document: dict[str, Any], namespace: str) -> None:
    assert str(namespace_of(exchange(command({**document, "$db": "weather"})).parsed())) == namespace


@pytest.mark.parametrize(
    ("document", "statements"),
    [
        ({"insert": "rows", "documents": [{}, {}]}, 2),
        ({"update": "rows", "updates": [{}]}, 1),
        ({"delete": "rows", "deletes": []}, 0),
        ({"find": "rows"}, None),
        ({"insert": "rows", "documents": {}}, None),
    ],
)
def test_statements_are_counted(document: dict[str, Any], statements: int | None) -> None:
    assert documents_in(exchange(command({**document, "$db": "weather"})).parsed()) == statements


def test_texts_are_short_and_on_one_line() -> None:
    assert printable("a\nb") == "a\\nb"
    assert len(printable("x" * 1_000)) == 257
