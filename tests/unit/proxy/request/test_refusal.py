"""Codes of refusals are found in replies as servers write them, whole and in pieces."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from proxy.request.refusal import UNKNOWN_CODE, refused_with

GOSSIP = {"$clusterTime": {"clusterTime": Timestamp(1, 1)}, "operationTime": Timestamp(1, 1)}
SET = {"electionId": ObjectId(), "opTime": {"ts": Timestamp(1, 1), "t": Int64(1)}}
DUPLICATE = {"index": 0, "code": 11000, "keyPattern": {"_id": 1}, "keyValue": {"_id": 1}, "errmsg": "E11000"}
CURSOR = {"firstBatch": [{"_id": 1, "code": 5, "ok": 0.0}], "id": Int64(0), "ns": "d.c"}
REPLIES: list[tuple[dict[str, Any], int]] = [
    ({"ok": 1.0}, 0),
    ({"ok": 1.0, **GOSSIP}, 0),
    ({"n": 1, "ok": 1.0}, 0),
    ({"n": 1, **SET, "ok": 1.0, **GOSSIP}, 0),
    ({"n": 1, "nModified": 1, "ok": 1.0}, 0),
    ({"cursor": CURSOR, "ok": 1.0}, 0),
    ({"values": [{"code": 5}], "ok": 1.0}, 0),
    ({"n": 5, "ok": 1}, 0),
    ({"n": Int64(1 << 40), "ok": 1.0}, 0),
    ({"lastErrorObject": {"n": 1, "code": 7}, "value": {"code": 8}, "ok": 1.0}, 0),
    ({"operationTime": Timestamp(1, 1), "ok": 1.0}, 0),
    ({"ok": 0.0, "errmsg": "no", "code": 59, "codeName": "CommandNotFound"}, 59),
    ({"ok": 0, "errmsg": "no", "code": 59}, 59),
    ({"ok": Int64(1), "code": 59}, 0),
    ({"operationTime": Timestamp(1, 1), "ok": 0.0, "errmsg": "no", "code": 59}, 59),
    ({"ok": 0.0, "errmsg": "code\0 \x10code\0" + "x" * 100_000, "code": 2}, 2),
    ({"ok": 0.0, "errmsg": "no"}, UNKNOWN_CODE),
    ({"ok": 0.0, "errmsg": "no", "code": 0}, UNKNOWN_CODE),
    ({"topologyVersion": {"counter": 1}, "ok": 0.0, "errmsg": "not master", "code": 10107, **GOSSIP}, 10107),
    ({"topologyVersion": {"counter": 1}, "ok": 1.0, "code": 7}, 0),
    ({"errorLabels": ["TransientTransactionError"], "ok": 0.0, "errmsg": "no", "code": 251}, 251),
    ({"n": 0, "writeErrors": [DUPLICATE], "ok": 1.0}, 11000),
    ({"n": 0, **SET, "writeErrors": [DUPLICATE], "ok": 1.0, **GOSSIP}, 11000),
    ({"n": 0, "opTime": SET["opTime"], "writeErrors": [DUPLICATE], "ok": 1.0}, 11000),
    ({"n": 2, "writeErrors": [{**DUPLICATE, "index": 3, "code": 121}, DUPLICATE], "ok": 1.0}, 121),
]


@pytest.mark.parametrize(("reply", "code"), REPLIES, ids=map(str, range(len(REPLIES))))
@pytest.mark.parametrize("head", [b"", bytes(21)], ids=["document", "message"])
def test_codes_in_replies(reply: dict[str, Any], code: int, head: bytes) -> None:
    assert refused_with(head + bson.encode(reply), len(head)) == code


@given(st.sampled_from(REPLIES), st.integers(0, 400))
def test_a_reply_in_pieces_is_never_taken_for_another(reply: tuple[dict[str, Any], int], size: int) -> None:
    document, code = reply
    found = refused_with(bson.encode(document)[:size], 0)
    assert found in (code, 0, UNKNOWN_CODE)
    assert found == 0 or code


@given(st.binary(max_size=300), st.integers(0, 30))
def test_any_bytes_have_an_answer(raw: bytes, start: int) -> None:
    refused_with(raw, start)


@given(
    st.binary(max_size=60), st.sampled_from([b"\x01ok\0", b"\x10n\0", b"\x03topologyVersion\0", b"\x04errorLabels\0"])
)
def test_any_bytes_after_a_name_have_an_answer(rest: bytes, name: bytes) -> None:
    raw = (len(rest) + len(name) + 5).to_bytes(4, "little") + name + rest + b"\0"
    refused_with(raw, 0)
