"""Streams of columns, byte by byte (W140-W148)."""

from __future__ import annotations

import struct

from catalog.kernel.column import encode_column


def int32(number: int) -> bytes:
    return b"\x10" + struct.pack("<i", number)


def double(number: float) -> bytes:
    return b"\x01" + struct.pack("<d", number)


def blocks(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def test_a_literal_alone() -> None:
    assert encode_column([int32(7)]) == b"\x10\0\x07\0\0\0\0"


def test_equal_values_are_zeros() -> None:
    """30 slots of two bits, all zero."""
    assert encode_column([int32(7)] * 31) == b"\x10\0\x07\0\0\0\x80" + blocks(2) + b"\0"


def test_long_runs_are_counted() -> None:
    """W142: selector 15, (k + 1) times 120 values."""
    assert encode_column([int32(7)] * 361) == b"\x10\0\x07\0\0\0\x80" + blocks(0x2F) + b"\0"


def test_a_missing_value_is_a_slot_of_ones() -> None:
    assert encode_column([int32(7), None]) == b"\x10\0\x07\0\0\0\x80" + blocks((1 << 64) - 16 + 14) + b"\0"


def test_doubles_take_the_smallest_scale_that_keeps_them() -> None:
    """W144: 0.5 to 0.7 is 5 to 7 in tenths, a zigzag of 4."""
    assert (
        encode_column([double(0.5), double(0.7)]) == b"\x01\0" + struct.pack("<d", 0.5) + b"\xa0" + blocks(0x4E) + b"\0"
    )


def test_more_than_sixteen_blocks_take_another_control_byte() -> None:
    stream = encode_column([b"\x12" + struct.pack("<q", (-1) ** row * 2**50) for row in range(18)])
    assert stream is not None
    assert stream[10] == 0x8F
    assert stream[11 + 16 * 8] == 0x80


def test_min_key_cannot_be_compressed() -> None:
    """W9."""
    assert encode_column([b"\xff", b"\xff"]) is None
