"""What is plain; that servers agree with the rest is in tests/differential/test_types.py."""

from __future__ import annotations

import math
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, Timestamp

from proxy.request.field_types import LONGEST_WRITE_CONCERN_BYTES, is_plain, number_in, plain_write_concern
from tests.support.bson_values import value_of


def raw(value: Any) -> bytes:
    kind, inside = value_of(value)
    return bytes([kind]) + inside


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7), (Int64(-7), -7), (7.0, 7), (-0.0, 0), (7.5, None), (math.nan, None), (math.inf, None), (1e300, None),
     (Decimal128("7"), None), ("7", None), (True, None)],
)  # fmt: skip
def test_whole_numbers(value: Any, number: int | None) -> None:
    assert number_in(raw(value)) == number


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lsid", {"id": Binary(bytes(16), 4)}, True),
        ("lsid", {"id": Binary(bytes(16), 4), "more": "x"}, False),
        ("lsid", {"id": Binary(bytes(16), 3)}, False),
        ("lsid", {"id": Binary(bytes(10_000), 4)}, False),
        ("$clusterTime", {"clusterTime": Timestamp(1, 1), "signature": {}}, True),
        ("$clusterTime", {}, False),
        ("maxTimeMS", 1 << 31, False),
        ("maxTimeMS", -1, False),
        ("maxTimeMS", 5.0, True),
        ("apiVersion", "1", True),
        ("apiVersion", "2", False),
        ("apiStrict", True, False),
        ("cursor", {"batchSize": math.inf}, False),
        ("cursor", {"batchSize": 5}, True),
        ("cursor", {}, True),
        ("unheard of", 5, True),
    ],
)
def test_plain_values(name: str, value: Any, expected: bool) -> None:
    assert is_plain(name.encode(), raw(value)) is expected


@pytest.mark.parametrize(
    "concern", [{"w": 1}, {"w": "majority", "wtimeout": 5}, {"w": "x" * 400}, {"j": True}, {"w": 2.0}], ids=str
)
def test_write_concern_goes_to_the_backend_as_it_is(concern: dict[str, Any]) -> None:
    assert plain_write_concern(bson.encode(concern)) == bson.encode(concern)


@pytest.mark.parametrize("concern", [{}, {"w": 0}, {"w": 0.0}], ids=str)
def test_no_write_concern_is_the_default(concern: dict[str, Any]) -> None:
    assert plain_write_concern(bson.encode(concern)) == b""


@pytest.mark.parametrize(
    "concern",
    [{"w": False}, {"w": 51}, {"w": -1}, {"w": math.nan}, {"x": 1}, {"w": "x" * LONGEST_WRITE_CONCERN_BYTES},
     {"w": {"tag": 1}}, {"j": 1}, {"wtimeout": "x"}],
    ids=lambda concern: str(concern)[:30],
)  # fmt: skip
def test_unusual_write_concern_is_the_backend_s(concern: dict[str, Any]) -> None:
    assert plain_write_concern(bson.encode(concern)) is None
    assert plain_write_concern(b"\x07\0\0\0\xff") is None
