from __future__ import annotations

import bson
import pytest
from bson.errors import InvalidBSON

from proxy.reads.replies import decoded, error_by, reshaped_by, retryable


def test_a_label_is_added_once() -> None:
    once = retryable(bson.encode({"ok": 0.0, "code": 189}))
    assert bson.decode(once) == {"ok": 0.0, "code": 189, "errorLabels": ["RetryableWriteError"]}
    assert retryable(once) == once


def test_messages_need_not_be_text() -> None:
    raw = bson.encode({"errmsg": "ab"}).replace(b"ab", b"\xff\xfe")
    assert decoded(raw)["errmsg"] == "\ufffd\ufffd"


def test_reshaping_must_lose_nothing() -> None:
    raw = bson.encode({"n": 1})
    assert reshaped_by(None, raw) == raw
    assert bson.decode(reshaped_by(lambda document: {**document, "m": 2}, raw)) == {"n": 1, "m": 2}
    with pytest.raises(InvalidBSON):
        reshaped_by(dict, bson.encode({"n": 1, "m": 2}).replace(b"\x10m\0", b"\x10n\0"))


def test_an_error_that_cannot_be_decoded_is_passed_on() -> None:
    raw = bson.encode({"ok": 0.0, "errmsg": "ab"})
    assert bson.decode(error_by(lambda error: {**error, "errmsg": "c"}, raw))["errmsg"] == "c"
    strange = raw.replace(b"ab", b"\xff\xfe")
    assert error_by(dict, strange) == strange
