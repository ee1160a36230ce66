"""What replies tell of a server that is no primary."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from proxy.upstream.not_primary import NOT_PRIMARY_CODES, NotPrimary, not_primary

REFUSED, INTERRUPTED = NotPrimary.REFUSED, NotPrimary.INTERRUPTED


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ({"ok": 1.0, "n": 1}, None),
        ({"ok": 0.0, "errmsg": "x", "code": 11000}, None),
        ({"ok": 0.0, "errmsg": "not primary", "code": 10107}, REFUSED),
        ({"ok": 0.0, "errmsg": "not primary", "code": 13435}, REFUSED),
        ({"ok": 0.0, "errmsg": "interrupted", "code": 11602}, INTERRUPTED),
        ({"n": 1, "writeConcernError": {"code": 189, "errmsg": "x"}, "ok": 1.0}, INTERRUPTED),
        ({"n": 1, "writeConcernError": {"code": 64, "errmsg": "x"}, "ok": 1.0}, None),
        ({"n": 0, "writeErrors": [{"index": 0, "code": 121}, {"index": 1, "code": 189}], "ok": 1.0}, INTERRUPTED),
        ({"n": 0, "writeErrors": [{"index": 0, "code": 121}], "ok": 1.0}, None),
        ({"ok": 1.0, "code": 189}, None),
        ({"ok": 1, "code": 10107, "errmsg": "a document of somebody's"}, None),
        ({"ok": True, "code": 91}, None),
        ({"code": 91}, INTERRUPTED),
        ({"cursor": {"firstBatch": [{"code": 10107}], "id": 0}, "ok": 1.0}, None),
    ],
    ids=str,
)
def test_reply_says_it(reply: dict[str, Any], verdict: NotPrimary | None) -> None:
    assert not_primary(bson.encode(reply)) is verdict


def test_every_code_counts() -> None:
    assert all(not_primary(bson.encode({"ok": 0.0, "code": code})) is not None for code in NOT_PRIMARY_CODES)
