"""Which buckets are compressed, and the order of what comes out (W6, W9)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import DatetimeMS, MinKey, ObjectId

from catalog.bson.codec import decode, encode
from tests.support.kernels import KERNELS

START_MS = 1_700_000_040_000


def bucket(rows: int, **changes: Any) -> dict[str, Any]:
    times = {str(row): DatetimeMS(START_MS + 1000 * (rows - row)) for row in range(rows)}
    ends = {"min": {"t": DatetimeMS(START_MS)}, "max": {"t": DatetimeMS(START_MS + 1000 * rows)}}
    data = {"v": {str(row): row for row in range(rows)}, "t": times}
    return {"_id": ObjectId(), "control": {"version": 1, **ends}, "meta": 1, "data": data, **changes}


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Any:
    return KERNELS[request.param]


def test_header_stays_but_for_version_and_count(kernel: Any) -> None:
    before = bucket(30)
    after = decode(kernel.compressed(encode(before), b"t"))
    control = {"version": 2, **{end: before["control"][end] for end in ("min", "max")}, "count": 30}
    assert list(after) == list(before)
    assert list(after["control"].items()) == list(control.items())
    assert list(after["data"]) == ["t", "v"]
    assert {column.subtype for column in after["data"].values()} == {7}


def test_what_is_not_worth_it_stays(kernel: Any) -> None:
    """W9."""
    assert kernel.compressed(encode(bucket(1)), b"t") is None
    low = bucket(30)
    low["data"]["v"]["3"] = MinKey()
    assert kernel.compressed(encode(low), b"t") is None


@pytest.mark.parametrize(
    "data",
    [
        {"t": 1},
        {"t": {"0": DatetimeMS(START_MS), "2": DatetimeMS(START_MS)}},
        {"t": {"0": DatetimeMS(START_MS), "1": DatetimeMS(START_MS)}, "v": {"2": 1}},
        {"t": {"0": DatetimeMS(START_MS), "1": DatetimeMS(START_MS)}, "v": {"1": 1, "0": 2}},
    ],
)
def test_what_is_no_bucket_is_refused(kernel: Any, data: dict[str, Any]) -> None:
    """W5."""
    with pytest.raises(ValueError, match=r"bucket|row"):
        kernel.compressed(encode(bucket(30, data=data)), b"t")


def test_compressed_buckets_are_not_compressed_again(kernel: Any) -> None:
    with pytest.raises(ValueError, match="version 1"):
        kernel.compressed(kernel.compressed(encode(bucket(30)), b"t"), b"t")
