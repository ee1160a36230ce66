"""Walking raw BSON: what a server accepts is walked, everything else is refused before it is read."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from catalog.bson import raw

VALUES: dict[str, Any] = {
    "double": 1.5,
    "string": "é\0x",
    "object": {"a": {"b": 1}},
    "array": [1, [2]],
    "binary": Binary(b"abc", 5),
    "oid": ObjectId(),
    "bool": True,
    "null": None,
    "regex": Regex("a", "i"),
    "code": Code("f"),
    "scope": Code("f", {"x": 1}),
    "int": 7,
    "timestamp": Timestamp(1, 2),
    "long": Int64(7),
    "decimal": Decimal128("1.0"),
    "min": MinKey(),
    "max": MaxKey(),
}
DB_POINTER = b"\x0cp\0\x02\0\0\0a\0" + bytes(12)
SYMBOL = b"\x0es\0\x02\0\0\0a\0"


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_is_walked_and_put_together_again(kind: str) -> None:
    document = bson.encode({"before": 1, "value": VALUES[kind], "after": "x"})
    elements = list(raw.iter_elements(document))
    assert [name for name, _ in elements] == [b"before", b"value", b"after"]
    assert raw.document(raw.element(name, value) for name, value in elements) == document


@pytest.mark.parametrize("element", [DB_POINTER, SYMBOL])
def test_types_without_a_python_value_are_walked(element: bytes) -> None:
    document = raw.document((element,))
    assert [raw.element(name, value) for name, value in raw.iter_elements(document)] == [element]


@pytest.mark.parametrize("kind", VALUES)
def test_every_cut_is_refused(kind: str) -> None:
    document = bson.encode({"value": VALUES[kind]})
    for end in range(len(document)):
        cut = len(document[:end]).to_bytes(4, "little") + document[4:end]
        with pytest.raises(raw.MalformedBSON):
            list(raw.iter_elements(cut[:end]))


@pytest.mark.parametrize(
    "element",
    [
        b"\x02a\0\0\0\0\0\0",
        b"\x02a\0\xff\xff\xff\xff\0",
        b"\x02a\0\x02\0\0\0ab",
        b"\x03a\0\x04\0\0\0\0",
        b"\x05a\0\xff\xff\xff\xff\0",
        b"\x08a\0\x02",
        b"\x14a\0",
        b"\x0ba\0no end",
    ],
)
def test_bad_lengths_and_types_are_refused(element: bytes) -> None:
    with pytest.raises(raw.MalformedBSON):
        list(raw.iter_elements(raw.document((element,))))


def test_of_a_repeated_name_the_first_counts() -> None:
    """W36."""
    document = raw.document((b"\x10a\0\1\0\0\0", b"\x10a\0\2\0\0\0"))
    assert raw.fields_of(document) == {b"a": b"\x10\1\0\0\0"}


def test_depth_counts_documents_arrays_and_scopes() -> None:
    value = raw.fields_of(bson.encode({"v": {"a": [{"b": Code("f", {"c": {}})}]}}))[b"v"]
    assert raw.nested_depth(value, value[0], 1, len(value)) == 5


def test_depth_finds_damage_at_any_level() -> None:
    value = bytearray(raw.fields_of(bson.encode({"v": {"a": {"b": "text"}}}))[b"v"])
    value[value.index(b"text") - 4] = 99
    with pytest.raises(raw.MalformedBSON):
        raw.nested_depth(bytes(value), value[0], 1, len(value))


def test_bottomless_nesting_is_refused() -> None:
    value = b"\x03" + bson.encode({})
    for _ in range(300):
        value = b"\x03" + raw.document((raw.element(b"a", value),))
    with pytest.raises(raw.MalformedBSON):
        raw.nested_depth(value, value[0], 1, len(value))


def test_documents_of_an_array() -> None:
    documents = [{}, {"a": 1}, {"b": {"c": [1]}}]
    array = raw.fields_of(bson.encode({"v": documents}))[b"v"]
    assert raw.documents_of(array, 1) == [bson.encode(each) for each in documents]
    assert raw.documents_of(bson.encode({})) == []


@pytest.mark.parametrize("values", [[1], [{}, 1], [[]], ["text"], [None]])
def test_arrays_of_anything_else_are_refused(values: list[object]) -> None:
    array = raw.fields_of(bson.encode({"v": values}))[b"v"]
    with pytest.raises(raw.MalformedBSON):
        raw.documents_of(array, 1)


@pytest.mark.parametrize("size", [0, 4, 14, 1000, -5])
def test_documents_do_not_reach_out_of_their_array(size: int) -> None:
    array = bytearray(bson.encode({"0": {}}))
    array[7:11] = size.to_bytes(4, "little", signed=True)
    with pytest.raises(raw.MalformedBSON):
        raw.documents_of(bytes(array))


NULL = bytes((raw.NULL,))
TWICE = [raw.element(b"b", NULL), raw.element(b"b", NULL)]


@pytest.mark.parametrize(
    ("document", "repeats"),
    [
        (raw.document([]), False),
        (raw.document([raw.element(b"a", NULL), raw.element(b"b", NULL)]), False),
        (raw.document(TWICE), True),
        (raw.document([raw.sub_array(b"a", [NULL, NULL]), raw.sub_document(b"b", TWICE[:1])]), False),
        (raw.document([raw.sub_document(b"a", TWICE)]), True),
        (raw.document([raw.sub_array(b"a", [b"\x03" + raw.document([raw.sub_document(b"c", TWICE)])])]), True),
    ],
)
def test_names_that_occur_twice_at_any_depth(document: bytes, repeats: bool) -> None:
    assert raw.names_repeat(document) is repeats
