"""Whether all times of an insert are so that bucket ids are in the order of time.

For inserts that the backend carries out itself, whose documents are not parsed here.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.bson import raw
from catalog.rollover import ID_RANGE_MS


def count_plain_times(pieces: Sequence[bytes], start: int, time_field: bytes) -> int:
    """The number of documents if each has a time from 1970 to 2106 (``ID_RANGE_MS``), else 0.

    Each of ``pieces``, a list or tuple, consists of one or more documents, the first from ``start`` on. Of a repeated
    name, the first is used (W36). Nothing behind the time is checked.
    """
    total = 0
    for data in pieces:
        if not 0 <= start <= len(data):
            raise ValueError("no part of the data")
        count = _count(data, start, len(data), time_field)
        if not count:
            return 0
        total += count
        start = 0
    return total


def _count(data: bytes, start: int, end: int, time_field: bytes) -> int:
    count = 0
    while start < end:
        if end - start < 5:
            return 0
        stop = start + raw.unpack_int32(data, start)[0]
        if stop < start + 5 or stop > end or not _has_plain_time(data, start, stop, time_field):
            return 0
        start = stop
        count += 1
    return count


def _has_plain_time(data: bytes, start: int, end: int, time_field: bytes) -> bool:
    try:
        for name, value in raw.iter_elements(data, start, end):
            if name == time_field:
                return value[0] == raw.DATE and 0 <= raw.unpack_int64(value, 1)[0] < ID_RANGE_MS
    except raw.MalformedBSON:
        return False
    return False
