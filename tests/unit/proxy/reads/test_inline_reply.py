"""How replies are processed; tests/unit/proxy/reads/test_inline_reads.py has what becomes of them."""

from __future__ import annotations

import bson

from proxy.reads.cursor_names import CursorNames
from proxy.reads.cursor_stream import Renaming
from proxy.reads.inline_reply import prepared_more
from tests.support.inline_reads import cursor_reply
from tests.support.scopes import TARGET


def test_next_batch_is_renamed_and_its_cursor_kept_until_its_end() -> None:
    """C23."""
    cursors = CursorNames()
    cursors.opened(9, TARGET.buckets)
    prepared = prepared_more(cursors, 9, Renaming(TARGET.buckets))
    assert prepared.more_of == 9
    for left in (9, 0):
        raw = bson.encode(cursor_reply(left, "nextBatch"))
        reply = prepared.finish(raw, b"")
        assert reply is not None
        assert bson.decode(reply)["cursor"]["ns"] == "db.x"
        assert len(reply) - len(raw) == prepared.grown_bytes
        assert cursors.backend_namespace(9) == (TARGET.buckets if left else None)
