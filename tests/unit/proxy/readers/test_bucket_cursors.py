from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.namespaces import Namespace
from proxy.readers.bucket_cursors import BucketCursors
from proxy.request.command import Command, parse_command
from proxy.wire.message import Message
from tests.support import raw_wire

FIND = {"find": "system.buckets.x", "$db": "db"}
MORE = {"getMore": Int64(7), "collection": "system.buckets.x", "$db": "db"}


def command(body: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(raw_wire.command(body)))


REFUSED = bson.encode({"ok": 0.0, "errmsg": "", "code": 13, "codeName": "Unauthorized"})


def reply(cursor_id: int) -> bytes:
    cursor = {"firstBatch": [], "id": Int64(cursor_id), "ns": "db.system.buckets.x"}
    return bson.encode({"cursor": cursor, "ok": 1.0})


def test_cursors_on_buckets_are_known_until_they_end() -> None:
    register = BucketCursors()
    for body, tail, known in (
        (FIND, reply(7), True),
        (MORE, reply(7), True),
        (MORE, REFUSED, True),
        (MORE, reply(0), False),
    ):
        reader = register.of_relayed(command(body))
        assert reader is not None
        assert reader.leaves_cursor
        reader.enter()
        reader.leave(tail)
        assert (register.relayed.backend_namespace(7) is not None) is known


@pytest.mark.parametrize(
    "body", [{"find": "x", "$db": "db"}, {"count": "system.buckets.x", "$db": "db"}, {**MORE, "getMore": Int64(8)}]
)
def test_nothing_else_is_a_reader(body: dict[str, Any]) -> None:
    register = BucketCursors()
    assert register.of_relayed(command(body)) is None
    assert register.of_rewritten(Namespace("db", "x")) is None
