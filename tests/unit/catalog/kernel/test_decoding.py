"""Streams written by hand from the format (W140-W149), as both forms read them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from bson import Decimal128, encode

from catalog.bson import raw
from catalog.kernel.decoding import iter_cells
from tests.support.kernels import KERNELS

FORMS = pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)


def _int(number: int) -> bytes:
    return b"\x10" + raw.pack_int32(number)


def _double(number: float) -> bytes:
    return b"\x01" + struct.pack("<d", number)


def _literal(value: bytes) -> bytes:
    return value[:1] + b"\0" + value[1:]


def _one(raw_value: int, control: int = 0x80) -> bytes:
    """A block of one slot of 60 bits."""
    return bytes((control,)) + (0xE | raw_value << 4).to_bytes(8, "little")


def _block(head: int, shift: int, width: int, *slots: int) -> bytes:
    packed = head
    for index, slot in enumerate(slots):
        packed |= slot << shift + index * width
    return b"\x80" + packed.to_bytes(8, "little")


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


TEXT = raw.string_value(b"ab")
OBJECT_ID = b"\x07" + bytes.fromhex("00000001aabbccddee000001")
_DECIMAL = raw.fields_of(encode({"": Decimal128("1.5")}))[b""]

READ: list[tuple[str, bytes, list[bytes | None]]] = [
    ("nothing", b"\0", []),
    ("literals", _literal(_int(1)) + _literal(TEXT) + b"\0", [_int(1), TEXT]),
    ("leading skips", _one((1 << 60) - 1) + _literal(_int(1)) + b"\0", [None, _int(1)]),
    ("a step", _literal(_int(5)) + _one(1) + _one(4) + b"\0", [_int(5), _int(4), _int(6)]),
    ("steps of seven bits", _literal(_int(0)) + _block(7, 8, 7, *[2] * 7, 127) + b"\0", [*map(_int, range(8)), None]),
    ("trailing zeros", _literal(_int(0)) + _block(0x97, 8, 56, 1 << 4 | 5) + b"\0", [_int(0), _int(16)]),
    ("zeros by four", _literal(_int(0)) + _block(0x78, 8, 56, 1 << 4 | 2) + b"\0", [_int(0), _int(128)]),
    ("more zeros by four", _literal(_int(0)) + _block(0xD8, 8, 56, 1 << 5 | 3) + b"\0", [_int(0), _int(2048)]),
    ("a repetition", _literal(_int(7)) + b"\x80" + b"\x0f" + bytes(7) + b"\0", [_int(7)] * 121),
    ("a date's pace", _literal(b"\x09" + _number(10, 8)) + _one(4) + _one(0) + b"\0",
     [b"\x09" + _number(each, 8) for each in (10, 12, 14)]),
    ("an id's bytes", _literal(OBJECT_ID) + _one(2) + b"\0", [OBJECT_ID, OBJECT_ID[:-1] + b"\2"]),
    ("a scaled double", _literal(_double(1.5)) + _one(2, 0xA0) + _one(1, 0xA0) + b"\0",
     [*map(_double, (1.5, 1.6, 1.5))]),
    ("a half, away from zero", _literal(_double(-2.0)) + _one(2, 0x90) + b"\0", [_double(-2.0), _double(-1.0)]),
    ("a double's bits", _literal(_double(0.0)) + _one(2) + b"\0", [_double(0.0), b"\x01" + _number(1, 8)]),
    ("text, highest byte first", _literal(TEXT) + _one(2) + b"\0", [TEXT, raw.string_value(b"ac")]),
    ("text that becomes empty", _literal(raw.string_value(b"\2")) + _one(3) + b"\0",
     [raw.string_value(b"\2"), raw.string_value(b"")]),
    ("text after what is no number", _literal(raw.string_value(b"x" * 17)) + _one(0) + _one(0xC2) + b"\0",
     [raw.string_value(b"x" * 17)] * 2 + [raw.string_value(b"a")]),
    ("a decimal's bits", _literal(_DECIMAL) + _one(2) + b"\0",
     [_DECIMAL, b"\x13" + bytes((_DECIMAL[1] + 1,)) + _DECIMAL[2:]]),
    ("binary data", _literal(b"\x05\2\0\0\0\x04\1\1") + _one(2) + b"\0",
     [b"\x05\2\0\0\0\x04\1\1", b"\x05\2\0\0\0\x04\2\1"]),
    ("any value once more", _literal(b"\x0bx\0i\0") + _one(0) + b"\0", [b"\x0bx\0i\0"] * 2),
]  # fmt: skip


@FORMS
@pytest.mark.parametrize(("stream", "cells"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_streams_are_read(form: Any, stream: bytes, cells: list[bytes | None]) -> None:
    assert form.column_cells(stream, len(cells)) == cells
    assert list(iter_cells(stream)) == cells
    for other in {len(cells) + 1, max(0, len(cells) - 1)} - {len(cells)}:
        with pytest.raises(ValueError):
            form.column_cells(stream, other)


def _section(reference: dict[str, Any], body: bytes, control: int = 0xF1) -> bytes:
    return bytes((control,)) + encode(reference) + body + b"\0"


def _object(document: dict[str, Any]) -> bytes:
    return b"\x03" + encode(document)


@FORMS
def test_sections_are_put_together(form: Any) -> None:
    """W147: a queue for each leaf; what has no field is not there, but for what is empty in the reference."""
    skip = _one((1 << 60) - 1)
    reference = {"a": 1, "b": {"c": 5, "d": {}}, "e": {"f": 2}}
    body = _one(0) + _one(2) + skip + _one(0) + skip + _literal(_int(9)) + skip + skip + skip
    stream = _section(reference, body) + _literal(_int(3)) + b"\0"
    first = {"a": 1, "b": {"c": 6, "d": {}}}
    assert form.column_cells(stream, 4) == [
        _object(first),
        _object({"a": 1, "b": {"d": {}}, "e": {"f": 9}}),
        _object({"b": {"d": {}}}),
        _int(3),
    ]
    array = _section({"0": 1}, _one(2) + skip, 0xF2) + b"\0"
    assert form.column_cells(array, 2) == [b"\x04" + encode({"0": 2}), None]


REFUSED = {
    "no end": _literal(_int(1)),
    "something after the end": b"\0\0",
    "an unknown control byte": b"\xe0\0",
    "arrays that are not taken apart": b"\xf0" + encode({"a": 1}) + b"\0\0",
    "blocks cut short": b"\x81" + bytes(8) + b"\0",
    "no selector": _literal(_int(1)) + b"\x80" + bytes(8) + b"\0",
    "a literal with a name": b"\x10a\0\1\0\0\0\0",
    "nothing to repeat": b"\x80\x0f" + bytes(7) + b"\0",
    "nothing to differ from": _one(2) + b"\0",
    "no boolean": _literal(b"\x08\1") + _one(2) + b"\0",
    "no int": _literal(_int(2**31 - 1)) + _one(2) + b"\0",
    "a step of what has none": _literal(b"\x0a") + _one(2) + b"\0",
    "a scale of an int": _literal(_int(1)) + _one(2, 0x90) + b"\0",
    "a scale after minus zero": _literal(_double(-0.0)) + _one(2, 0x90) + b"\0",
    "a scale after not any number": _literal(_double(float("nan"))) + _one(2, 0x90) + b"\0",
    "a scale that does not give the double back": _literal(_double(0.15)) + _one(2, 0xA0) + b"\0",
    "a reference without leaves": _section({"a": {}}, b"") + b"\0",
    "a row cut short": _section({"a": 1, "b": 2}, _one(0)) + b"\0",
    "a section in a section": _section({"a": 1}, _section({"a": 1}, b"")) + b"\0",
}


@FORMS
@pytest.mark.parametrize("stream", REFUSED.values(), ids=REFUSED)
def test_what_is_no_column_is_refused(form: Any, stream: bytes) -> None:
    for rows in range(4):
        with pytest.raises(ValueError):
            form.column_cells(stream, rows)
