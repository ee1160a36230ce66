"""Which replies say that something was changed."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from proxy.request.outcome import may_have_changed


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"ok": 1.0}, True),
        ({"n": 3, "ok": 1.0}, True),
        ({"n": 0, "ok": 1.0}, False),
        ({"n": 0, "writeErrors": [{"code": 2}], "ok": 1.0}, False),
        ({"n": 0, "writeErrors": [{"code": 11601}], "ok": 1.0}, True),
        ({"n": 2, "writeErrors": [{"code": 2}], "ok": 1.0}, True),
        ({"lastErrorObject": {"n": 0}, "value": None, "ok": 1.0}, False),
        ({"lastErrorObject": {"n": 1}, "value": {}, "ok": 1.0}, True),
        ({"ok": 1.0, "writeConcernError": {"code": 64}}, True),
        ({"ok": 0.0, "code": 13}, False),
        ({"ok": 0.0, "code": 26}, False),
        ({"ok": 0.0, "code": 251}, False),
        ({"ok": 0.0, "code": 11600}, True),
        ({"ok": 0.0, "code": 64}, True),
        ({"ok": 0.0, "code": 26, "applied": 2, "results": [True, False]}, True),
        ({"ok": 0.0, "code": 26, "applied": 0}, False),
        ({"ok": 0.0, "code": 26, "writeConcernError": {"code": 64}}, True),
    ],
    ids=str,
)
def test_a_refusal_changes_nothing_what_is_left_open_may_have(reply: dict[str, Any], expected: bool) -> None:
    assert may_have_changed(bson.encode(reply)) is expected
