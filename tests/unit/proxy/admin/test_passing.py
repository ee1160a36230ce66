"""Which commands start while clients are paused, and what is shown of a command."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin.passing import Passage, command_of, name_and_namespace, passage_of
from tests.support.admin_calls import Asking
from tests.support.raw_wire import command, framed, query


@pytest.mark.parametrize(
    ("document", "passage"),
    [
        ({"tsproxy": "status"}, Passage.FREE),
        ({"hello": 1}, Passage.FREE),
        ({"isMaster": 1, "client": {}}, Passage.FREE),
        ({"hello": 1, "speculativeAuthenticate": {}}, Passage.LOGIN),
        ({"hello": 1, "saslSupportedMechs": "a.b"}, Passage.LOGIN),
        ({"saslStart": 1}, Passage.LOGIN),
        ({"saslContinue": 1}, Passage.LOGIN),
        ({"logout": 1}, Passage.LOGIN),
        ({"buildInfo": 1}, Passage.OWN),
        ({"endSessions": []}, Passage.OWN),
        ({"ping": 1}, Passage.HELD),
        ({"insert": "c"}, Passage.HELD),
        ({"getMore": 1}, Passage.HELD),
        ({"shutdown": 1}, Passage.HELD),
    ],
    ids=str,
)
def test_what_needs_no_backend_starts(document: dict[str, Any], passage: Passage) -> None:
    assert passage_of(command_of(Asking().exchange(document))) is passage


def test_legacy_greetings_are_greetings() -> None:
    """Drivers begin with OP_QUERY."""
    asking = Asking()
    assert passage_of(command_of(asking.exchange(query({"isMaster": 1})))) is Passage.FREE
    login = {"isMaster": 1, "speculativeAuthenticate": {}}
    assert passage_of(command_of(asking.exchange(query(login)))) is Passage.LOGIN


def test_what_cannot_be_parsed_is_left_to_the_dispatcher() -> None:
    broken = framed(2013, b"\0\0\0\0\0\5\0\0\0\1")
    assert command_of(Asking().exchange(broken)) is None
    assert passage_of(None) is Passage.FREE


@pytest.mark.parametrize(
    ("document", "expected", "parsed"),
    [
        ({"find": "c.d", "filter": {"a": 1}, "$db": "d"}, ("find", "d.c.d"), None),
        ({"insert": "c", "$db": "d", "documents": []}, ("insert", "d.c"), None),
        ({"unknown": "c", "$db": "d"}, ("unknown", "d.c"), None),
        ({"tsproxy": "status", "$db": "admin"}, ("tsproxy", "admin"), None),
        ({"getMore": 5, "collection": "c", "$db": "d"}, ("getMore", ""), ("getMore", "d")),
    ],
    ids=str,
)
def test_commands_are_named_without_parsing_them(
    document: dict[str, Any], expected: tuple[str, str], parsed: tuple[str, str] | None
) -> None:
    exchange = Asking().exchange(command(document))
    assert name_and_namespace(exchange) == expected
    assert exchange.command is None
    exchange.parsed()
    assert name_and_namespace(exchange) == (parsed or expected)


def test_nothing_is_known_of_other_messages() -> None:
    assert name_and_namespace(Asking().exchange(query({"isMaster": 1}))) == ("", "")
