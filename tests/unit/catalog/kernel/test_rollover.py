"""Starts, ids and limits of buckets."""

from __future__ import annotations

import pytest

from catalog.kernel.rollover import Limits, RolloverReason, bucket_id, rounded_start_ms, size_cap_bytes


@pytest.mark.parametrize(
    ("time_ms", "rounding_seconds", "start_ms"),
    [
        (0, 60, 0),
        (59_999, 60, 0),
        (60_000, 60, 60_000),
        (7_199_999, 3_600, 3_600_000),
        (86_400_001, 86_400, 86_400_000),
        (-1, 60, -60_000),
        (-30_000, 60, -60_000),
        (-60_000, 60, -60_000),
        (2**63 - 1, 60, 9223372036854720000),
        (-(2**63), 60, -(2**63)),
    ],
)
def test_starts_round_down_on_both_sides_of_1970(time_ms: int, rounding_seconds: int, start_ms: int) -> None:
    """W31, W32; not below what a date can hold."""
    assert rounded_start_ms(time_ms, rounding_seconds) == start_ms


@pytest.mark.parametrize(
    ("start_ms", "head"),
    [(0, "00000000"), (1_700_000_040_000, "6553f128"), (4_733_856_000_000, "1a28e900"), (-60_000, "ffffffc4")],
)
def test_ids_begin_with_the_low_bits_of_the_start(start_ms: int, head: str) -> None:
    """W10: without error outside of 1970 to 2106."""
    assert bucket_id(start_ms, b"abcdefgh") == bytes.fromhex(head) + b"abcdefgh"


def test_ids_have_twelve_bytes() -> None:
    with pytest.raises(ValueError, match="eight"):
        bucket_id(0, b"short")


def test_reasons_are_numbered_in_the_order_of_the_checks() -> None:
    """W40."""
    assert [reason.name for reason in sorted(RolloverReason)][:5] == [
        "SCHEMA_CHANGE",
        "COUNT",
        "SIZE",
        "TIME_FORWARD",
        "TIME_BACKWARD",
    ]


def test_limits_are_the_servers_parameters() -> None:
    """W41, W42, W45."""
    assert Limits() == Limits(max_count=1000, max_size_bytes=128_000, min_count=10, large_max_bytes=12 * 1024 * 1024)


@pytest.mark.parametrize(
    ("share_bytes", "open_buckets", "cap_bytes"),
    [
        (0, 10**6, 0),
        (128_000_000, 0, 0),
        (128_000_000, 1_000, 0),
        (128_000_000, 1_001, 127_872),
        (128_000_000, 10_000, 12_800),
        (128_000_000, 25_000, 5_120),
        (128_000_000, 10**6, 5_120),
    ],
)
def test_w51_open_buckets_share_a_part_of_the_cache(share_bytes: int, open_buckets: int, cap_bytes: int) -> None:
    assert size_cap_bytes(Limits(), share_bytes, open_buckets) == cap_bytes


def test_w51_a_floor_as_high_as_the_limit_turns_the_cap_off() -> None:
    assert size_cap_bytes(Limits(min_size_bytes=128_000), 1, 10**6) == 0
