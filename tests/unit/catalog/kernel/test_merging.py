"""Parts that do not belong together are refused."""

from __future__ import annotations

from typing import Any

import pytest
from bson import DatetimeMS, ObjectId

from catalog.bson.codec import decode, encode
from catalog.kernel.merging import closed, is_closed
from tests.support.kernels import KERNELS, measure

START_MS = 1_700_000_040_000
PART_ID = bytes(range(12))


def part(kernel: Any, second: int, **fields: Any) -> bytes:
    row = measure(kernel, {"t": START_MS + second * 1000, "m": 1, **fields})
    return bytes(kernel.one_row_part(PART_ID, b"t", START_MS, row, False))


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Any:
    return KERNELS[request.param]


def test_summaries_are_folded(kernel: Any) -> None:
    """W20-W24."""
    parts = [part(kernel, 0, v=3, o={"a": 1}), closed(part(kernel, 2, v=1, o={"b": 2})), part(kernel, 1, v=7)]
    document, rows = kernel.join_documents(parts, PART_ID, b"t", b"m")
    bucket = decode(document)
    assert rows == 3
    assert bucket["control"] == {
        "version": 1,
        "min": {"t": DatetimeMS(START_MS), "v": 1, "o": {"a": 1, "b": 2}},
        "max": {"t": DatetimeMS(START_MS + 2000), "v": 7, "o": {"a": 1, "b": 2}},
    }
    assert bucket["data"]["v"] == {"0": 3, "1": 1, "2": 7}


@pytest.mark.parametrize(
    "change",
    [
        {"control": {"version": 2}},
        {"control": {"min": {"t": DatetimeMS(START_MS), "v": "x"}}},
        {"control": {"min": {"t": DatetimeMS(START_MS)}}},
        {"control": {"min": {"t": DatetimeMS(START_MS + 1), "v": 1}}},
        {"data": {"t": {"1": DatetimeMS(START_MS)}}},
        {"data": {"t": {"0": DatetimeMS(START_MS - 1)}}},
        {"data": {"v": {"1": 1}}},
        {"data": {"v": {"00": 1}}},
        {"data": {"v": 1}},
    ],
)
def test_what_is_no_part_of_the_bucket_is_refused(kernel: Any, change: dict[str, dict[str, Any]]) -> None:
    """W5, W47."""
    bucket = decode(part(kernel, 0, v=1))
    for name, fields in change.items():
        bucket[name] = {**bucket[name], **fields}
    with pytest.raises(ValueError, match=r"bucket|row|column|part|differ"):
        kernel.join_documents([part(kernel, 0, v=1), encode(bucket)], PART_ID, b"t", b"m")


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ({"version": 1, "min": {}, "max": {}}, False),
        ({"version": 1, "min": {}, "max": {}, "closed": True}, True),
        ({"version": 1, "closed": False, "min": {}, "max": {}}, False),
        ({"version": 1, "closed": True, "min": {}, "max": {}, "count": 3}, True),
    ],
)
def test_a_closed_bucket_is_known_wherever_it_says_so(control: dict[str, Any], expected: bool) -> None:
    """Servers append the field where they find place."""
    bucket = {"_id": ObjectId(), "control": control, "meta": 1, "data": {}}
    assert is_closed(encode(bucket)) is expected
    assert is_closed(encode({"control": control})) is expected
    if "closed" not in control:
        assert is_closed(closed(encode(bucket)))
