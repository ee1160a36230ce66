from __future__ import annotations

import bson
import pytest

from catalog.errors import CommandError
from proxy.wire import op_msg, op_query
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.raw_wire import framed, query


def parsed(raw: bytes) -> op_query.OpQuery:
    return op_query.parse(Message.from_bytes(raw))


def test_command_query_names_its_database() -> None:
    message = parsed(query({"isMaster": 1}, "test.$cmd"))
    assert (message.database, message.number_to_return, bson.decode(message.command)) == ("test", -1, {"isMaster": 1})


def test_ordinary_query_is_no_command() -> None:
    assert parsed(query({"x": 1}, "a.b")).database is None


def test_wrapped_command_is_unwrapped() -> None:
    message = parsed(query({"$query": {"isMaster": 1}, "$readPreference": {"mode": "primary"}}))
    assert bson.decode(message.command) == {"isMaster": 1}


def test_field_selector_is_allowed() -> None:
    assert bson.decode(parsed(query(bson.encode({"x": 1}) + bson.encode({"_id": 0}))).query) == {"x": 1}


@pytest.mark.parametrize("document", [bson.encode({"isMaster": 1})[:-3], bson.encode({"isMaster": 1}) + b"zz"])
def test_broken_query_document_is_invalid_bson(document: bytes) -> None:
    with pytest.raises(CommandError) as caught:
        parsed(query(document))
    assert caught.value.code == 22


@pytest.mark.parametrize("payload", [b"", b"\0\0\0\0admin", b"\0\0\0\0admin.$cmd\0\0\0"])
def test_query_without_its_fixed_part_closes(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        parsed(framed(2004, payload))


def test_a_query_that_is_no_handshake_closes() -> None:
    """It would be parsed at once, by whoever connects."""
    hello = bson.encode({"hello": 1, "x": "x" * 60_000})
    assert parsed(framed(2004, bytes(4) + b"admin.$cmd\0" + bytes(4) + b"\xff\xff\xff\xff" + hello)).command == hello
    large = bson.encode({"hello": 1, "x": "x" * op_query.MOST_BYTES})
    with pytest.raises(ProtocolError, match="OP_QUERY of"):
        parsed(framed(2004, bytes(4) + b"admin.$cmd\0" + bytes(4) + b"\xff\xff\xff\xff" + large))


def test_reply_gives_its_document_back() -> None:
    raw = op_query.build_reply(3, 4, bson.encode({"ok": 1.0}))
    assert bson.decode(op_query.reply_document(Message.from_bytes(raw))) == {"ok": 1.0}
    with pytest.raises(ProtocolError):
        op_query.reply_document(Message.from_bytes(op_msg.build(1, 0, bson.encode({}))))
