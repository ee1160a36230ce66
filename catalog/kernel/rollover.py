"""When a bucket takes no further measurement, and the limits that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

_INT64_MIN = -(1 << 63)

ID_RANGE_MS = 2**32 * 1000
"""The order of bucket ids is the order of time only from 1970 up to this time (W10)."""


class RolloverReason(IntEnum):
    """Why a bucket was closed. ``try_stage`` answers the first five, in the order of the checks (W40), and the last."""

    SCHEMA_CHANGE = 1
    COUNT = 2
    SIZE = 3
    TIME_FORWARD = 4
    TIME_BACKWARD = 5
    MEMORY = 6
    REOPENING = 7
    CACHE_PRESSURE = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """The server parameters that bound a bucket (W41, W42, W45, W51).

    ``max_count``: rows. ``max_size_bytes``: size by W46. ``min_count``: a bucket with fewer rows than this
    may grow beyond ``max_size_bytes`` up to ``large_max_bytes``; 0 turns that off, as in 6.0.5.
    ``min_size_bytes``: no number of open buckets makes the size limit smaller than this.
    """

    max_count: int = 1000
    max_size_bytes: int = 128_000
    min_size_bytes: int = 5120
    min_count: int = 10
    large_max_bytes: int = 12 * 1024 * 1024


def rounded_start_ms(time_ms: int, rounding_seconds: int) -> int:
    """The start of a new bucket whose first measurement is of ``time_ms`` (W31).

    Rounds down on both sides of 1970 (W32), but not below what a BSON date can hold.
    """
    return max(time_ms - time_ms % (rounding_seconds * 1000), _INT64_MIN)


def bucket_id(start_ms: int, suffix: bytes) -> bytes:
    """The twelve bytes of a bucket's ``_id``: the low 32 bits of the start in seconds, then ``suffix`` (W10)."""
    if len(suffix) != 8:
        raise ValueError("a bucket id ends in eight bytes")
    return (start_ms // 1000 & 0xFFFFFFFF).to_bytes(4, "big") + suffix


def size_cap_bytes(limits: Limits, share_bytes: int, open_buckets: int) -> int:
    """The size limit of each bucket, so that all open ones fit into ``share_bytes`` of the server's cache (W51).

    :returns: 0 if the ordinary limit is small enough, or ``share_bytes`` is 0
    """
    if not share_bytes or open_buckets * limits.max_size_bytes <= share_bytes:
        return 0
    cap_bytes = max(limits.min_size_bytes, share_bytes // open_buckets)
    return cap_bytes if cap_bytes < limits.max_size_bytes else 0
