"""Which commands the backend would not refuse for their form, and what is sent for them.

``tests/differential/test_ruled_collections.py`` shows that a server refuses the others.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest

from proxy.clients.creating_commands import creating, is_plain_create, is_sound, may_create_others, may_create_own
from proxy.request.command import Command, parse_command
from proxy.settings.collection_rules import parse_rules
from proxy.wire.message import Message
from tests.support.wire import op_msg

INSERT: dict[str, Any] = {"insert": "cpu", "documents": [{"a": 1}]}
INDEXES: dict[str, Any] = {"createIndexes": "cpu", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}
RETRYABLE = {"lsid": {"id": bson.Binary(bytes(16), 4)}, "txnNumber": bson.Int64(1)}


def command(document: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(op_msg({**document, "$db": "db"})))


def index(**fields: Any) -> dict[str, Any]:
    return {**INDEXES, "indexes": [{"key": {"a": 1}, "name": "a_1", **fields}]}


@pytest.mark.parametrize(
    ("document", "sound"),
    [
        (INSERT, True),
        ({**INSERT, "writeConcern": {"w": "majority"}}, True),
        ({**INSERT, "writeConcern": {"w": 77}}, False),
        ({**INSERT, "documents": []}, False),
        ({**INSERT, "zz": 1}, False),
        ({**INSERT, "collectionUUID": bson.Binary(bytes(16), 4)}, False),
        ({**INSERT, "readConcern": {"level": "majority"}}, False),
        ({**INSERT, **RETRYABLE, "stmtIds": [1, 2]}, False),
        ({"create": "cpu", "writeConcern": {"w": 77}}, True),
        (INDEXES, True),
        ({**INDEXES, "indexes": []}, False),
        ({**INDEXES, "indexes": 5}, False),
        ({**INDEXES, "indexes": [5]}, False),
        ({**INDEXES, "zz": 1}, False),
        (index(key={"a": "2dsphere"}), True),
        (index(key={"a": "nonsense"}), False),
        (index(key={"a": 0}), False),
        (index(key={"a": float("nan")}), False),
        (index(key={"a": True}), False),
        (index(key={}), False),
        (index(name=5), False),
        (index(zz=1), False),
        ({**index(zz=1), "ignoreUnknownIndexOptions": True}, True),
    ],
)
def test_form(document: dict[str, Any], sound: bool) -> None:
    for replicates in (True, False):
        assert is_sound(command(document), replicates=replicates) is sound


@pytest.mark.parametrize(
    "document",
    [
        {**INSERT, **RETRYABLE},
        {**INSERT, "writeConcern": {"w": 2}},
        {**INSERT, "writeConcern": {"w": "tag"}},
        {**INDEXES, "commitQuorum": 1},
    ],
)
def test_what_a_standalone_refuses(document: dict[str, Any]) -> None:
    assert is_sound(command(document), replicates=True)
    assert not is_sound(command(document), replicates=False)


def test_commands_that_may_create_a_collection() -> None:
    assert may_create_own(command({"update": "cpu", "updates": []}))
    assert not may_create_own(command({"find": "cpu"}))
    assert may_create_others(command({"aggregate": "x", "pipeline": [{"$out": "cpu"}]}))
    assert not may_create_others(command({"aggregate": "x", "pipeline": []}))


def test_plain_creates() -> None:
    assert is_plain_create(command({"create": "cpu", "capped": False, "collation": {"locale": "de"}}))
    assert not is_plain_create(command({"create": "cpu", "capped": True, "size": 1}))
    assert not is_plain_create(command({"create": "cpu", "viewOn": "x"}))


def test_what_is_sent() -> None:
    (rule,) = parse_rules(["db.* -> timeField=t expireAfterSeconds=60"])
    timeseries = {"timeField": "t"}
    assert bson.decode(creating(command(INSERT), rule)) == {
        "create": "cpu",
        "timeseries": timeseries,
        "expireAfterSeconds": 60,
    }
    given = {"create": "cpu", "expireAfterSeconds": 5}
    assert bson.decode(creating(command(given), rule)) == {**given, "timeseries": timeseries}
