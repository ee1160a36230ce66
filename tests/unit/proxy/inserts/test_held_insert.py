from __future__ import annotations

import bson

from catalog.identity import Identity
from proxy.inserts.held_insert import HeldInsert
from proxy.inserts.insert_command import InsertCommand
from tests.unit.catalog.test_committer import Bench


async def test_who_waited_too_long_is_told_that_nothing_was_written() -> None:
    replies: list[bytes | None] = []
    insert = InsertCommand((b"",), True, b"", b"", None, None, True, 0)
    HeldInsert(insert, Bench().virtual, Identity(), replies.append, 0.0).turn_away()
    (reply,) = replies
    assert bson.decode(reply or b"")["code"] == 262
