"""Buckets of wide, varying, nested and hostile objects, by a seed: what the kernel's objects and arrays must endure."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import bson

from catalog.bson import raw

START_MS = 1_714_521_600_000
BUCKET_ID = (START_MS // 1000).to_bytes(4, "big") + b"abcdefgh"


def _int64(value: int) -> bytes:
    return raw.pack_int64((value + 2**63) % 2**64 - 2**63)


def _double(value: float) -> bytes:
    return struct.pack("<d", value)


def _text(chance: random.Random, row: int) -> bytes:
    return raw.string_value(chance.choice((b"ok", b"", b"\0a", b"warning", b"x" * 16, b"y" * 17, b"%d" % row)))


_CODE = raw.string_value(b"f()")[1:]
_SCALARS: tuple[Callable[[random.Random, int], bytes], ...] = (
    lambda chance, row: b"\x10" + raw.pack_int32(row),
    lambda chance, row: b"\x10" + raw.pack_int32(chance.randrange(-5, 5)),
    lambda chance, row: b"\x12" + _int64(chance.getrandbits(64)),
    lambda chance, row: b"\x12" + _int64(row * row << chance.randrange(50)),
    lambda chance, row: b"\x01" + _double(row / 100),
    lambda chance, row: b"\x01" + _double(chance.choice((0.0, -0.0, 1e300, 2.0**53, 0.1, float("inf")))),
    # Not any number, with a payload.
    lambda chance, row: b"\x01" + (0x7FF8 << 48 | chance.getrandbits(4)).to_bytes(8, "little"),
    lambda chance, row: b"\x09" + _int64(START_MS + 1000 * row + row // 9),
    lambda chance, row: b"\x11" + struct.pack("<II", row, chance.randrange(3)),
    lambda chance, row: b"\x07" + (START_MS // 1000 + row).to_bytes(4, "big") + b"abcde" + row.to_bytes(3, "big"),
    lambda chance, row: b"\x08" + bytes((row % 3 == 0,)),
    _text,
    lambda chance, row: b"\x0d" + _text(chance, row)[1:],
    lambda chance, row: b"\x0e" + _text(chance, row)[1:],
    lambda chance, row: b"\x05" + raw.pack_int32(4) + bytes((chance.choice((0, 0, 4, 128)),)) + chance.randbytes(4),
    lambda chance, row: b"\x05" + raw.pack_int32(20) + b"\0" + chance.randbytes(1) * 20,
    # Equal by value, not by their bytes: 1.0 and 1.00.
    lambda chance, row: b"\x13" + chance.choice((b"\x0a" + bytes(13) + b"\x3e\x30", b"\x64" + bytes(13) + b"\x3c\x30")),
    lambda chance, row: b"\x13" + (row + chance.randrange(3)).to_bytes(14, "little") + b"\x40\x30",
    lambda chance, row: b"\x0a",
    lambda chance, row: b"\x06",
    lambda chance, row: b"\x0b" + chance.choice((b"a\0i\0", b"b\0\0")),
    lambda chance, row: b"\x0c" + _CODE + bytes(12),
    lambda chance, row: b"\x03" + bson.encode({}),
    lambda chance, row: b"\x04" + bson.encode({}),
)
_UNTOUCHABLE = (b"\x7f", b"\xff", b"\x0f" + raw.pack_int32(4 + len(_CODE) + 5) + _CODE + bson.encode({}))
_NAMES = tuple(
    b"%b%d" % (word, number) for number in range(60) for word in (b"temperature ", b"k", b"a.b$", b"\xc3\xa9")
)

Shape = Callable[[random.Random, int], "bytes | None"]


def _leaf(chance: random.Random) -> Shape:
    makes = [chance.choice(_SCALARS) for _ in range(chance.choice((1, 1, 1, 1, 3)))]
    missing = chance.choice((0.0, 0.0, 0.0, 0.05, 0.5))

    def value(chance: random.Random, row: int) -> bytes | None:
        return None if chance.random() < missing else chance.choice(makes)(chance, row)

    return value


def _branch(chance: random.Random, width: int, levels: int) -> Shape:
    """An object or array whose rows lack some fields, turn some round, and repeat a name once in a while."""
    names = chance.sample(_NAMES, min(width, len(_NAMES))) + [b"n%d" % i for i in range(width - len(_NAMES))]
    kind = chance.choice((raw.OBJECT, raw.OBJECT, raw.OBJECT, raw.ARRAY))
    inner = [
        _branch(chance, chance.choice((2, 5, 17, 40)), levels - 1)
        if levels and chance.random() < 0.04
        else _leaf(chance)
        for _ in names
    ]
    fields = list(zip(names, inner, strict=True))
    turning, repeating = chance.choice((0, 0, 0, 0.02)), chance.choice((0, 0, 0, 0.02))

    def value(chance: random.Random, row: int) -> bytes | None:
        there = [(name, made) for name, make in fields if (made := make(chance, row)) is not None]
        if there and chance.random() < turning:
            there.reverse()
        if there and chance.random() < repeating:
            there.append(chance.choice(there))
        if kind == raw.ARRAY:
            there = [(b"%d" % index, made) for index, (_, made) in enumerate(there)]
        return bytes((kind,)) + raw.document(raw.element(*field) for field in there)

    return value


def _bucket(times: Sequence[int], columns: Sequence[tuple[bytes, Sequence[bytes | None]]]) -> bytes:
    time = raw.document(raw.element(b"%d" % row, b"\x09" + _int64(each)) for row, each in enumerate(times))
    data = [b"\x03t\0" + time]
    for name, cells in columns:
        there = (raw.element(b"%d" % row, cell) for row, cell in enumerate(cells) if cell is not None)
        data.append(raw.sub_document(name, there))
    ends = raw.document((b"\x09t\0" + _int64(START_MS),))
    control = (b"\x10version\0\1\0\0\0", b"\x03min\0" + ends, b"\x03max\0" + ends)
    fields = (b"\x07_id\0" + BUCKET_ID, raw.sub_document(b"control", control), b"\x10meta\0\1\0\0\0")
    return raw.document((*fields, raw.sub_document(b"data", data)))


def wide_bucket(chance: random.Random, rows: int = 0, width: int = 0, *, untouchable: bool = False) -> bytes:
    """A stored bucket of version 1, time field ``t``; ``untouchable``: with a value that no column may hold."""
    rows = rows or chance.choice((2, 3, 9, 30, 70, 130))
    step, jitter = chance.choice((1000, 1000, 1, 0, -1000)), chance.choice((1, 1, 5000))
    times = [START_MS + step * row + chance.randrange(jitter) for row in range(rows)]
    columns: list[tuple[bytes, list[bytes | None]]] = []
    for number in range(chance.choice((1, 1, 2, 4))):
        wide = width or chance.choice((3, 17, 20, 40, 100, 300))
        shape = _branch(chance, wide, 2) if number == 0 or chance.random() < 0.5 else _leaf(chance)
        columns.append((b"c%d" % number, [shape(chance, row) for row in range(rows)]))
    if untouchable:
        columns[0][1][chance.randrange(rows)] = chance.choice(_UNTOUCHABLE)
    # What repeats makes the compressed form the smaller one.
    columns.append((b"padding", [raw.string_value(b"x" * 4000)] * rows))
    return _bucket(times, columns)


def wide_rows(chance: random.Random) -> list[bytes]:
    """Measurements with time field ``t`` and meta field ``m``, mostly of one series."""
    shapes = [
        (b"c%d" % number, _branch(chance, chance.choice((3, 17, 40)), 1)) for number in range(chance.choice((1, 3)))
    ]
    shapes += [(b"s%d" % number, _leaf(chance)) for number in range(chance.choice((1, 20)))]
    rows: list[bytes] = []
    for row in range(chance.choice((1, 2, 9, 40))):
        fields = [(name, value) for name, make in shapes if (value := make(chance, row)) is not None]
        fields.insert(0, (b"t", b"\x09" + _int64(START_MS + 1000 * row)))
        fields.insert(chance.randrange(len(fields)), (b"m", b"\x10" + raw.pack_int32(chance.random() < 0.02)))
        rows.append(raw.document(raw.element(*field) for field in fields))
    return rows


def damaged_bucket(chance: random.Random, document: bytes) -> bytes:
    """A few bytes of it changed, taken out or put in."""
    damaged = bytearray(document)
    for _ in range(chance.randrange(1, 4)):
        if not damaged:
            break
        at = chance.randrange(len(damaged))
        match chance.randrange(3):
            case 0:
                damaged[at] = chance.choice((0, 1, 2, 3, 4, 5, 0x0F, 0x10, 0x7F, 0xFF, damaged[at] ^ 1))
            case 1:
                del damaged[at : at + chance.randrange(1, 9)]
            case _:
                damaged[at:at] = chance.randbytes(chance.randrange(1, 7))
    if len(damaged) > 4 and chance.random() < 0.7:
        damaged[:4] = len(damaged).to_bytes(4, "little")
    return bytes(damaged)
