from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.request.command import MOST_FIELDS, Command, parse_command, parse_legacy_command
from proxy.wire.message import Message
from tests.support.raw_wire import body, command, op_msg_bytes, query, sequence


def parsed(document: dict[str, Any], flags: int = 0) -> Command:
    return parse_command(Message.from_bytes(command(document, flags=flags)))


def test_first_field_names_command_and_collection() -> None:
    insert = parsed({"insert": "c", "ordered": False, "$db": "d"})
    assert (insert.name, insert.namespace) == ("insert", Namespace("d", "c"))
    assert insert.expects_reply
    assert not insert.exhaust_allowed


def test_command_without_a_collection_is_database_wide() -> None:
    assert parsed({"ping": 1, "$db": "d"}).namespace == Namespace("d", "")


def test_flags_tell_what_the_client_waits_for() -> None:
    assert not parsed({"insert": "c", "$db": "d"}, flags=2).expects_reply
    assert parsed({"hello": 1, "$db": "d"}, flags=1 << 16).exhaust_allowed


def test_values_are_decoded_one_by_one() -> None:
    find = parsed({"find": "c", "filter": {"a": [1]}, "limit": Int64(5), "$db": "d"})
    assert find.get("filter") == {"a": [1]}
    assert find.get("limit") == 5
    assert find.get("nothing") is None
    assert find.raw(b"filter") == bson.encode({"a": [1]})
    assert find.raw(b"nothing") == b""


def test_a_transaction_and_a_retryable_write_are_told_by_their_fields() -> None:
    insert = parsed({"insert": "c", "txnNumber": Int64(4), "autocommit": False, "$db": "d"})
    assert (insert.in_transaction, insert.has_txn_number) == (True, True)
    insert = parsed({"insert": "c", "txnNumber": Int64(4), "$db": "d"})
    assert (insert.in_transaction, insert.has_txn_number) == (False, True)


def test_fields_can_be_left_out() -> None:
    assert bson.decode(parsed({"hello": 1, "compression": ["zlib"], "$db": "d"}).without(b"compression")) == {
        "hello": 1,
        "$db": "d",
    }


def test_sequences_are_folded_in_on_decoding() -> None:
    raw = op_msg_bytes(body({"insert": "c", "$db": "d"}), sequence("documents", {"a": 1}))
    assert parse_command(Message.from_bytes(raw)).decode() == {"insert": "c", "$db": "d", "documents": [{"a": 1}]}


def test_bad_bytes_inside_a_value_are_noticed_when_it_is_decoded() -> None:
    raw = bson.encode({"find": "c", "x": {"s": "ab"}, "$db": "d"}).replace(b"ab\0", b"\xff\xfe\0")
    find = parse_command(Message.from_bytes(op_msg_bytes(body(raw))))
    for decode in (lambda: find.get("x"), find.decode):
        with pytest.raises(CommandError) as caught:
            decode()
        assert caught.value.code == 22


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"ping": 1}, 40571),
        ({"ping": 1, "$db": 5}, 13111),
        ({"ping": 1, "$db": ""}, 73),
        ({"ping": 1, "$db": "a b"}, 73),
        ({"ping": 1, "$db": "a.b"}, 73),
        ({"ping": 1, "$db": "a\0b"}, 73),
        ({"ping": 1, "$db": "a" * 64}, 73),
    ],
)
def test_database_must_be_named(document: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        parsed(document)
    assert caught.value.code == code


def test_sequence_may_not_repeat_a_field() -> None:
    raw = op_msg_bytes(body({"insert": "c", "documents": [], "$db": "d"}), sequence("documents", {"a": 1}))
    with pytest.raises(CommandError) as caught:
        parse_command(Message.from_bytes(raw))
    assert caught.value.code == 40433


def test_legacy_command_has_its_database_from_outside() -> None:
    message = Message.from_bytes(query({"isMaster": 1}))
    command = parse_legacy_command(message, "admin", bson.encode({"isMaster": 1}))
    assert (command.name, command.namespace, command.expects_reply) == ("isMaster", Namespace("admin", ""), True)


@pytest.mark.parametrize("large", [[{}] * 20_000, {"a": ["x"] * 20_000}])
def test_large_documents_and_arrays_are_not_decoded_in_passing(large: Any) -> None:
    kill = parsed({"killCursors": "c", "cursors": large, "comment": "x" * 100_000, "$db": "d"})
    assert kill.get("cursors") is None
    assert kill.get("cursors", 10_000_000) == large
    assert kill.get("comment") == "x" * 100_000


def test_no_command_has_more_top_level_fields_than_can_be_walked() -> None:
    fields = {f"f{number}": 1 for number in range(MOST_FIELDS)}
    fewer = dict(list(fields.items())[: MOST_FIELDS - 1])
    assert parsed({**fewer, "$db": "d"}).name == "f0"
    with pytest.raises(CommandError) as refused:
        parsed({"find": "c", **fields, "$db": "d"})
    assert refused.value.code == 9
    assert parsed({"insert": "c", "documents": [{"a": "x" * 100_000}], "$db": "d"}).name == "insert"
