"""Rows of every BSON type and shape, made as raw bytes and fast: what is wide is encoded once and changed in places."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

import bson
from bson import ObjectId

from tests.support.raw_rows import digest_of

Value = tuple[int, bytes]
"""The byte of a BSON type and an encoded value."""
Maker = Callable[[random.Random], Value]

_INT = struct.Struct("<i").pack
_LONG = struct.Struct("<q").pack
_DOUBLE = struct.Struct("<d").pack
_TEXTS = (
    "",
    "a",
    "é",
    "日本語",
    "\U0001f600 x",
    "nul\0inside",
    "long " * 40,
    "$dollar",
    "a.b",
    "\u202e",
    "-0",
    "0",
    "no UTF-8 \udcff\udcfe",
)
_NAMES = (
    "a", "b2", "temp", "é", "日本", "0", "7", "control", "data", "version", "long name " * 5, "a$b", "T", "_", " ",
    "x y", "\U0001f600", "meta", "min", "max", "count", "k1", "k2", "k3",
)  # fmt: skip
_ODD_NAMES = ("a.b", "", "$x", "$", ".", "a..b", "$set", "$_id", "a.0")


def element(name: str, value: Value) -> bytes:
    return bytes((value[0],)) + name.encode() + b"\0" + value[1]


def document(*content: bytes) -> bytes:
    inner = b"".join(content)
    return _INT(len(inner) + 5) + inner + b"\0"


def text(content: str) -> bytes:
    raw = content.encode(errors="surrogateescape")
    return _INT(len(raw) + 1) + raw + b"\0"


# --- scalars ---------------------------------------------------------------------------------------------------------

_DOUBLES = (
    bytes.fromhex("000000000000f87f"), bytes.fromhex("010000000000f87f"), bytes.fromhex("000000000000f8ff"),
    bytes.fromhex("efbeadde0000f07f"), bytes.fromhex("010000000000f07f"), _DOUBLE(0.0), _DOUBLE(-0.0),
    _DOUBLE(float("inf")), _DOUBLE(float("-inf")), _DOUBLE(5e-324), _DOUBLE(-5e-324), _DOUBLE(1.7976931348623157e308),
    _DOUBLE(0.1), _DOUBLE(1.0), _DOUBLE(2.0**53), _DOUBLE(2.0**63),
)  # fmt: skip
_DECIMALS = tuple(
    bson.Decimal128(each).bid
    for each in (
        "0", "-0", "0.0", "0.00", "-0E+5", "1", "1.0", "1.00", "10E-1", "NaN", "-NaN", "sNaN", "Infinity", "-Infinity",
        "1E+6000", "9.999999999999999999999999999999999E+6144", "1E-6176", "0E+6111", "9007199254740993",
    )
)  # fmt: skip


def _double(chance: random.Random) -> Value:
    kind = chance.randrange(4)
    if kind == 0:
        return 1, chance.choice(_DOUBLES)
    if kind == 1:
        return 1, _DOUBLE(float(chance.randrange(100)))
    return 1, _DOUBLE(chance.uniform(-1e3, 1e3) if kind == 2 else round(chance.uniform(0, 50), 2))


def _string(chance: random.Random) -> Value:
    return 2, text(chance.choice(_TEXTS) + (str(chance.randrange(50)) if chance.random() < 0.5 else ""))


def _binary(chance: random.Random) -> Value:
    subtype = chance.choice((0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 128, 255))
    raw = chance.randbytes(16 if subtype in (3, 4, 5) else chance.choice((0, 1, 7, 16, 17, 40)))
    if subtype == 2:
        raw = _INT(len(raw)) + raw
    return 5, _INT(len(raw)) + bytes((subtype,)) + raw


def _regex(chance: random.Random) -> Value:
    pattern, flags = chance.choice(("", "a", "^b.*é")), chance.choice(("", "i", "imsx", "x", "s"))
    return 0x0B, pattern.encode() + b"\0" + flags.encode() + b"\0"


def _date(chance: random.Random) -> Value:
    return 9, _LONG(
        chance.choice((0, -1, 2**31 * 1000, -(2**62), 2**62, chance.randrange(-(10**12), 10**14), 1_714_521_600_000))
    )


def _decimal(chance: random.Random) -> Value:
    if chance.random() < 0.3:
        return 0x13, chance.randbytes(16)
    return 0x13, chance.choice(_DECIMALS)


def _int64(chance: random.Random) -> Value:
    return 0x12, _LONG(
        chance.choice((0, 1, -1, 2**63 - 1, -(2**63), 2**31, 2**53 + 1, chance.randrange(1000), chance.getrandbits(60)))
    )


def _code_with_scope(chance: random.Random) -> Value:
    content = text(chance.choice(_TEXTS)) + document(element("x", _double(chance)), element("", (0x0A, b"")))
    return 0x0F, _INT(len(content) + 4) + content


SCALARS: tuple[Maker, ...] = (
    _double,
    _string,
    _binary,
    _regex,
    _date,
    _decimal,
    _int64,
    lambda _: (6, b""),
    lambda chance: (7, chance.choice((bytes(12), b"\xff" * 12, ObjectId().binary, chance.randbytes(12)))),
    lambda chance: (8, chance.choice((b"\0", b"\1"))),
    lambda _: (0x0A, b""),
    # A server cuts the name of a DBPointer at a NUL.
    lambda chance: (0x0C, text(chance.choice(_TEXTS).replace("\0", "")) + chance.randbytes(12)),
    lambda chance: (0x0D, text(chance.choice(_TEXTS))),
    lambda chance: (0x0E, text(chance.choice(_TEXTS))),
    lambda chance: (0x10, _INT(chance.choice((0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(1000))))),
    lambda chance: (
        0x11,
        struct.pack("<II", chance.choice((0, 1, 2**32 - 1, chance.getrandbits(32))), chance.choice((0, 1, 2**32 - 1))),
    ),
    lambda _: (0x7F, b""),
    lambda _: (0xFF, b""),
)
RARE: tuple[Maker, ...] = (_code_with_scope,)
"""A bucket that holds one of these is never compressed, so they are rare."""


def _scalar(chance: random.Random) -> Maker:
    return chance.choice(RARE) if chance.random() < 0.01 else chance.choice(SCALARS)


# --- what has an inside ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wide:
    """Encoded documents of many fields with varying sets of keys; some of the fixed-width values change in each row."""

    variants: tuple[tuple[bytes, tuple[int, ...]], ...]
    kind: int

    def __call__(self, chance: random.Random) -> Value:
        raw, places = chance.choice(self.variants)
        changed = bytearray(raw)
        for place in chance.sample(places, min(len(places), chance.choice((0, 1, 3, 8)))):
            changed[place] = chance.randrange(256)
        return self.kind, bytes(changed)


def _wide(chance: random.Random, keys: int, variants: int, *, array: bool = False) -> Wide:
    names = [str(number) if array else f"{chance.choice(_NAMES)}{number}" for number in range(keys)]
    makers = [_scalar(chance) if chance.random() < 0.3 else _int64 for _ in names]
    if keys and chance.random() < 0.5:
        inner = names[: max(1, keys // 10)]
        makers[0] = lambda chance: (3, document(*(element(name, _double(chance)) for name in inner)))
    made = []
    for _ in range(variants):
        share = chance.choice((1.0, 1.0, 0.9, 0.5, 0.05))
        content, places, size = [], [], 4
        for name, maker in zip(names, makers, strict=True):
            if not array and chance.random() > share:
                continue
            value = maker(chance)
            content.append(element(name, value))
            size += len(content[-1])
            if value[0] in (1, 9, 0x10, 0x11, 0x12, 0x13, 7):
                # The lowest byte: any value of it is valid.
                places.append(size - len(value[1]))
        if not array and chance.random() < 0.3:
            order = list(range(len(content)))
            chance.shuffle(order)
            content, places = [content[each] for each in order], []
        made.append((document(*content), tuple(places)))
    return Wide(tuple(made), 4 if array else 3)


def _deep(chance: random.Random, depth: int) -> Maker:
    leaf, names = _scalar(chance), [chance.choice((*_NAMES, *_ODD_NAMES)) for _ in range(depth)]
    arrays = [chance.random() < 0.3 for _ in range(depth)]

    def make(chance: random.Random) -> Value:
        value = leaf(chance)
        for name, array in zip(names, arrays, strict=True):
            value = (4, document(element("0", value))) if array else (3, document(element(name, value)))
        return value

    return make


def _any_of(makers: tuple[Maker, ...]) -> Maker:
    return lambda chance: chance.choice(makers)(chance)


def _inner(chance: random.Random) -> Maker:
    match chance.randrange(7):
        case 0:
            return _deep(chance, chance.choice((1, 2, 5, 20, 60)))
        case 1:
            return _wide(chance, chance.choice((0, 1, 3, 20, 100)), chance.choice((1, 4, 12)), array=True)
        case 2:
            return _any_of((_wide(chance, 5, 3), _wide(chance, 4, 3, array=True), _scalar(chance)))
        case _:
            return _wide(
                chance, chance.choice((3, 17, 20, 40, 100, 200, 300, 300, 1000, 3000)), chance.choice((1, 4, 12, 30))
            )


def leaves(value: Value) -> int:
    """How many values there are in a value; an empty document is one."""
    kind, raw = value
    if kind not in (3, 4):
        return 1
    from tests.support.raw_rows import elements

    return sum(leaves((each[0], each[len(name) + 2 :])) for name, each in elements(raw)) or 1


# --- whole rows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    name: str
    make: Maker
    share: float
    """In how many of the rows it is there."""


@dataclass(frozen=True)
class Template:
    """Rows that are alike; ``fields`` are sorted by the bytes of their names."""

    fields: tuple[Field, ...]
    values: float
    """How many values a row has, roughly: as many as a first row."""


@dataclass(frozen=True)
class Row:
    """A document to send, and how to recognise it: ``digest`` of all but the meta field."""

    raw: bytes
    digest: bytes
    values: int


def template(chance: random.Random, *, large: bool = False) -> Template:
    """A new kind of row."""
    names = {chance.choice(_NAMES) for _ in range(chance.choice((1, 3, 8, 12)))}
    if chance.random() < 0.25:
        names |= set(chance.sample(_ODD_NAMES, 2))
    width = chance.choice((0, 0, 0, 0, 20, 100, 500))
    names |= {f"f{number}" for number in range(width)}
    names -= {"_id", "t", "m", "tag"}
    inside = {f"o{number}" for number in range(0 if width > 100 else chance.choice((1, 1, 2, 4)))}
    sparse = chance.choice((1.0, 1.0, 0.9, 0.3))
    fields = []
    for name in sorted(names | inside):
        make = _inner(chance) if name in inside else _scalar(chance)
        if chance.random() < 0.1:
            make = _any_of((make, _scalar(chance), _scalar(chance)))
        fields.append(Field(name, make, sparse))
    if large:
        fields.append(Field("large", _large(chance.choice((1, 1, 2, 4, 10)) * 1_000_000), 1.0))
    fields.sort(key=lambda field: field.name.encode())
    first = [field.make(chance) for field in fields]
    values = sum(leaves(value) * field.share for value, field in zip(first, fields, strict=True))
    return Template(tuple(fields), values + 3)


def _large(size: int) -> Maker:
    def make(chance: random.Random) -> Value:
        raw = chance.randbytes(64) * (size // 64)
        return 5, _INT(len(raw)) + b"\0" + raw

    return make


def row(chance: random.Random, kind: Template, time_ms: int, meta: bytes, tag: int, identity: bytes) -> Row:
    """``meta`` and ``identity`` are whole elements named ``m`` and ``_id``; ``meta`` may be empty."""
    everything = chance.random()
    content = [
        (field.name.encode(), element(field.name, field.make(chance)))
        for field in kind.fields
        if field.share == 1.0 or everything > 0.95 or chance.random() < field.share
    ]
    content += [
        (b"_id", identity),
        (b"t", element("t", (9, _LONG(time_ms)))),
        (b"tag", element("tag", (0x10, _INT(tag)))),
    ]
    content.sort()
    parts = [each for _, each in content]
    recognised = digest_of(parts)
    if chance.random() < 0.3:
        chance.shuffle(parts)
    parts.insert(chance.randrange(len(parts) + 1), meta)
    return Row(document(*parts), recognised, int(kind.values))


# --- meta ------------------------------------------------------------------------------------------------------------


def metas(chance: random.Random, count: int) -> list[bytes]:
    """Elements named ``m`` of all shapes, the missing one among them; same documents in different orders, too."""
    made = [b"", element("m", (0x0A, b""))]
    while len(made) < count:
        match chance.randrange(4):
            case 0:
                value = _scalar(chance)(chance)
            case 1:
                value = _deep(chance, chance.choice((1, 3, 10)))(chance)
            case 2:
                value = (4, document(*(element(str(n), _scalar(chance)(chance)) for n in range(chance.randrange(4)))))
            case _:
                content = [element(name, _scalar(chance)(chance)) for name in chance.sample((*_NAMES, *_ODD_NAMES), 4)]
                made.append(element("m", (3, document(*reversed(content)))))
                value = (3, document(*content))
        made.append(element("m", value))
    return made
