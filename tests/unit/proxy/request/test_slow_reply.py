from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from proxy.request.slow_reply import MOST_COUNTED, ReplySummary, reply_of
from proxy.request.slow_threshold import Ended
from proxy.wire import op_msg, op_query

CURSOR = {"firstBatch": [{"a": 1}, {}], "id": Int64(0), "ns": "d.c"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"n": 3, "ok": 1.0}, ("ok", 0, None, False)),
        ({"ok": 1}, ("ok", 0, None, False)),
        ({"ok": 0.0, "errmsg": "no", "code": 59}, ("error", 59, None, False)),
        ({"cursor": CURSOR, "ok": 1.0}, ("ok", 0, 2, False)),
        ({"cursor": {"nextBatch": [], "id": Int64(7), "ns": "d.c"}, "ok": 1.0}, ("ok", 0, 0, True)),
        ({"cursor": {"nextBatch": [], "id": Int64(0), "ns": "d.c"}, "ok": 1.0}, ("ok", 0, 0, False)),
        ({"cursor": {"firstBatch": [{}] * (MOST_COUNTED + 1), "id": Int64(0)}, "ok": 1}, ("ok", 0, None, False)),
        ({"n": 0, "writeErrors": [{"index": 0, "code": 11000}], "ok": 1.0}, ("write_error", 11000, None, False)),
        ({"n": 1, "writeConcernError": {"code": 64, "errmsg": "x"}, "ok": 1.0}, ("write_error", 64, None, False)),
    ],
)
def test_summary(document: dict[str, Any], expected: tuple[str, int, int | None, bool]) -> None:
    raw = bson.encode(document)
    size_bytes = len(raw) + op_msg.BODY_AT
    of_document = reply_of(Ended(1.0, raw))
    assert (of_document.outcome, of_document.code, of_document.documents, of_document.waits_for_data) == expected
    assert of_document.size_bytes == size_bytes
    assert reply_of(Ended(1.0, None, op_msg.build(5, 6, raw))) == of_document
    legacy = reply_of(Ended(1.0, None, op_query.build_reply(5, 6, raw)))
    assert (legacy.outcome, legacy.code) == expected[:2]


def test_without_a_reply() -> None:
    assert reply_of(Ended(1.0)) == ReplySummary("no_reply")
    assert reply_of(Ended(1.0, closed=True)).outcome == "closed"
    assert reply_of(Ended(1.0, disconnected=True)).outcome == "disconnected"
    assert reply_of(Ended(1.0, streamed_bytes=70_000)) == ReplySummary("ok", size_bytes=70_000)


@pytest.mark.parametrize("cut", range(1, 40))
def test_damaged_replies_are_errors(cut: int) -> None:
    raw = bson.encode({"cursor": CURSOR, "ok": 1.0})
    assert reply_of(Ended(1.0, raw[:-cut])).outcome == "error"
