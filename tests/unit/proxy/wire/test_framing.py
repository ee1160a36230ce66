from __future__ import annotations

from datetime import UTC, datetime

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from catalog.errors import CommandError
from proxy.wire.framing import document_end, top_level

EVERY_TYPE = {
    "double": 1.5, "string": "text", "document": {"a": 1}, "array": [1, "b"], "binary": Binary(b"xyz", 5),
    "id": ObjectId(), "bool": True, "date": datetime(2026, 1, 2, tzinfo=UTC), "null": None, "regex": Regex("a.*b", "i"),
    "ref": DBRef("c", 1), "code": Code("f()"), "scoped": Code("f()", {"a": 1}), "int": 1, "timestamp": Timestamp(1, 2),
    "long": Int64(3), "decimal": Decimal128("1.5"), "min": MinKey(), "max": MaxKey(), "": "no name",
}  # fmt: skip


def test_every_type_is_skipped_by_its_own_size() -> None:
    raw = bson.encode(EVERY_TYPE)
    fields = top_level(raw)
    assert list(fields) == [name.encode() for name in EVERY_TYPE]
    for name, (kind, start, end) in fields.items():
        alone = bytes([kind]) + b"v\0" + raw[start:end] + b"\0"
        one = (len(alone) + 4).to_bytes(4, "little") + alone
        assert bson.decode(one)["v"] == bson.decode(raw)[name.decode()]


def test_old_types_are_known() -> None:
    undefined = b"\x06u\0"
    pointer = b"\x0cp\0\x02\0\0\0c\0" + bytes(12)
    symbol = b"\x0es\0\x02\0\0\0x\0"
    raw = b"".join((undefined, pointer, symbol))
    document = (len(raw) + 5).to_bytes(4, "little") + raw + b"\0"
    assert list(top_level(document)) == [b"u", b"p", b"s"]


def test_first_of_two_equal_names_counts() -> None:
    raw = bson.encode({"a": 1, "b": 2}).replace(b"b\0", b"a\0")
    repeated: list[bytes] = []
    _, start, end = top_level(raw, repeated=repeated)[b"a"]
    assert repeated == [b"a"]
    assert int.from_bytes(raw[start:end], "little") == 1


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x04\0\0\0", "at least 5 bytes"),
        (b"\xff\xff\xff\xff\0", "at least 5 bytes"),
        (b"\x06\0\0\0\0", "Incorrect BSON length"),
        (b"\x05\0\0\0\x01", "not terminated with EOO"),
    ],
)
def test_document_frame_faults_are_invalid_bson(raw: bytes, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        document_end(raw, 0, len(raw))
    assert caught.value.code == 22


@pytest.mark.parametrize(
    "content",
    [
        b"\x99x\0\0\0\0\0",  # unknown type
        b"\x02s\0\xff\xff\xff\x7fab\0",  # string longer than the document
        b"\x02s\0\0\0\0\0",  # string without its terminator
        b"\x02s\0\xff\xff\xff\xff",  # negative length
        b"\x03d\0\x02\0\0\0",  # document shorter than a document can be
        b"\x10i\0\x01\0",  # cut off
        b"\x10name without end",
        b"\x0br\0abc\0xyz",  # regex options without end
        b"\x0brabc",
    ],
)
def test_element_faults_are_invalid_bson(content: bytes) -> None:
    raw = (len(content) + 5).to_bytes(4, "little") + content + b"\0"
    with pytest.raises(CommandError) as caught:
        top_level(raw)
    assert caught.value.code == 22
