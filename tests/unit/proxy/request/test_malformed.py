"""Which commands are left to the server, because it refuses them whatever they are about."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from proxy.request.command import parse_command
from proxy.request.malformed import may_be_malformed
from proxy.wire.message import Message
from tests.support.raw_wire import command, op_msg_bytes

SESSION = {"id": 1}


def is_left(fields: dict[str, Any]) -> bool:
    return may_be_malformed(parse_command(Message.from_bytes(command({**fields, "$db": "db"}))))


def test_a_name_that_occurs_twice() -> None:
    content = bson.encode({"find": "x", "limit": 1, "$db": "db"})[4:-1] + bson.encode({"limit": 1})[4:-1]
    body = (len(content) + 5).to_bytes(4, "little") + content + b"\0"
    parsed = parse_command(Message.from_bytes(op_msg_bytes(b"\0" + body)))
    assert parsed.repeats_fields
    assert may_be_malformed(parsed)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, False),
        ({"lsid": SESSION, "txnNumber": Int64(0)}, False),
        ({"lsid": SESSION, "txnNumber": Int64(-1)}, True),
        ({"txnNumber": Int64(1)}, True),
        ({"lsid": SESSION, "txnNumber": "x"}, False),
    ],
)
def test_transaction_numbers(fields: dict[str, Any], *, left: bool) -> None:
    """The types of these fields are checked elsewhere (``proxy.request.field_types``)."""
    assert is_left({"find": "x", **fields}) is left


@pytest.mark.parametrize("name", ["insert", "update", "delete", "findAndModify"])
@pytest.mark.parametrize(
    ("preference", "left"),
    [
        ({"mode": "primary"}, False),
        ({"mode": "nearest"}, False),
        ({"mode": "any"}, True),
        ({"mode": "nearest", "tags": [{"a": "b"}]}, True),
        (5, True),
    ],
)
def test_read_preferences_of_writes(name: str, preference: Any, *, left: bool) -> None:
    """Other commands are sent on with theirs, or a member is chosen by it."""
    assert is_left({name: "x", "$readPreference": preference}) is left
    assert not is_left({"count": "x", "$readPreference": preference})
