"""Whether the documents of an insert may be left to the server, without harm to reads of the collection.

The times must be so that bucket ids are in the order of time (Q12), and no meta value may be undefined: servers store
it, and nobody can read the bucket then (W35). For inserts that the backend carries out itself, which are not parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.bson import raw
from catalog.kernel.rollover import ID_RANGE_MS


def count_plain_times(pieces: Sequence[bytes], start: int, time_field: bytes, meta_field: bytes | None) -> int:
    """The number of documents if each has a time from 1970 to 2106 (``ID_RANGE_MS``) and no undefined meta, else 0.

    Each of ``pieces``, a list or tuple, consists of one or more documents, the first from ``start`` on. Of a repeated
    name, the first is used (W36). Nothing behind both fields is checked.
    """
    total = 0
    for data in pieces:
        if not 0 <= start <= len(data):
            raise ValueError("no part of the data")
        count = _count(data, start, len(data), time_field, meta_field)
        if not count:
            return 0
        total += count
        start = 0
    return total


def _count(data: bytes, start: int, end: int, time_field: bytes, meta_field: bytes | None) -> int:
    count = 0
    while start < end:
        if end - start < 5:
            return 0
        stop = start + raw.unpack_int32(data, start)[0]
        if stop < start + 5 or stop > end or not _is_plain(data, start, stop, time_field, meta_field):
            return 0
        start = stop
        count += 1
    return count


def _is_plain(data: bytes, start: int, end: int, time_field: bytes, meta_field: bytes | None) -> bool:
    has_time, has_meta = False, meta_field is None
    try:
        for name, value in raw.iter_elements(data, start, end):
            if not has_time and name == time_field:
                if value[0] != raw.DATE or not 0 <= raw.unpack_int64(value, 1)[0] < ID_RANGE_MS:
                    return False
                has_time = True
            elif not has_meta and name == meta_field:
                if value[0] == raw.UNDEFINED:
                    return False
                has_meta = True
            if has_time and has_meta:
                return True
    except raw.MalformedBSON:
        return False
    return has_time
