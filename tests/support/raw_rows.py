"""Rows as raw BSON, brought into a form that is equal for equal rows and for no others.

A time-series collection promises no order of a row's fields (they come back as time, meta, then in the order in which
their bucket first met them), so the fields are sorted by name. Nothing inside a field is touched: NaN payloads,
trailing zeros of decimals, the order of keys in sub-documents and the like all count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b

_LENGTH = struct.Struct("<i").unpack_from
_FIXED = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0,
}  # fmt: skip
# What the length in front of the value leaves out.
_PREFIXED = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}


def elements(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and whole element (type, name, value) of each field of a document, in its order."""
    position, end = 4, len(raw) - 1
    while position < end:
        kind = raw[position]
        name_end = raw.index(0, position + 1)
        after = name_end + 1
        if (size := _FIXED.get(kind)) is not None:
            after += size
        elif (extra := _PREFIXED.get(kind)) is not None:
            after += _LENGTH(raw, after)[0] + extra
        elif kind == 0x0B:
            after = raw.index(0, raw.index(0, after) + 1) + 1
        else:
            raise ValueError(f"no BSON type: {kind:#x}")
        yield raw[position + 1 : name_end], raw[position:after]
        position = after


def split(batch: bytes) -> Iterator[bytes]:
    """The documents of a raw batch, as ``find_raw_batches`` yields it."""
    position = 0
    while position < len(batch):
        size = _LENGTH(batch, position)[0]
        yield batch[position : position + size]
        position += size


def digest(raw: bytes) -> bytes:
    """Equal for rows that have the same fields with the same bytes."""
    return digest_of([element for _, element in sorted(elements(raw))])


def digest_of(sorted_elements: list[bytes]) -> bytes:
    """The same of elements that are sorted by their names."""
    return blake2b(b"".join(sorted_elements), digest_size=16).digest()
