from __future__ import annotations

import uuid

import bson
import pytest
from bson import Binary, DatetimeMS

from catalog.bson.codec import CODEC, TOLERANT, decode, encode


@pytest.mark.parametrize("time_ms", [-(1 << 63), -1, 0, 1 << 62])
def test_w10_times_that_no_datetime_can_hold_come_back(time_ms: int) -> None:
    assert decode(encode({"t": DatetimeMS(time_ms)})) == {"t": DatetimeMS(time_ms)}


@pytest.mark.parametrize("subtype", [0, 2, 3, 4, 128])
def test_binary_keeps_its_subtype(subtype: int) -> None:
    value = Binary(uuid.UUID(int=5).bytes, subtype)
    back = decode(encode({"v": value}))["v"]
    assert (bytes(back), getattr(back, "subtype", 0)) == (bytes(value), subtype)


def test_only_what_the_backend_says_may_be_no_utf8() -> None:
    raw = encode({"errmsg": "ab"}).replace(b"ab\0", b"\xffb\0")
    with pytest.raises(bson.errors.InvalidBSON):
        bson.decode(raw, CODEC)
    assert bson.decode(raw, TOLERANT) == {"errmsg": "\ufffdb"}
