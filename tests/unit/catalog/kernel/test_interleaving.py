"""Objects taken apart: which rows share a reference, as 6.0.5 was seen to do it, and the bytes (W147)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Code, DatetimeMS, MaxKey, MinKey, ObjectId, decode, encode
from bson.raw_bson import RawBSONDocument

from catalog.bson import raw
from catalog.kernel.column import encode_column
from catalog.kernel.interleaving import Incompressible, sections
from tests.support.kernels import KERNELS

Row = Any
"""A letter for each field that holds a number; a value as it is; ``None`` where the row has none."""


def cell(row: Row) -> bytes | None:
    if row is None:
        return None
    value = dict.fromkeys(row, 1) if isinstance(row, str) else row
    return raw.fields_of(encode({"": value}))[b""]


def references(*rows: Row) -> list[Any]:
    """The references of the sections; rows that are not taken apart are counted."""
    return [
        len(section.cells) if section.reference is None else decode(section.reference.document())
        for section in sections([cell(row) for row in rows])
    ]


def ones(*groups: str) -> list[dict[str, int]]:
    return [dict.fromkeys(group, 1) for group in groups]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["a", "ab", "abc"], ["abc"]),
        (["ac", "abc"], ["abc"]),
        (["ac", "cb"], ["acb"]),
        (["ac", "ba"], ["bac"]),
        (["ac", "bd"], ["acbd"]),
        (["abc", "bxc"], ["abxc"]),
        (["ac", "cba"], ["ac", "cba"]),
        (["a", "b", "ba"], ["ab", "ba"]),
        (["a", None, "ab"], ["ab"]),
    ],
)
def test_a_young_reference_takes_in_fields(rows: list[Row], expected: list[str]) -> None:
    assert references(*rows) == ones(*expected)


@pytest.mark.parametrize("leaves", ["a", "abc", "abcdefgh"])
def test_a_reference_is_young_for_twice_its_leaves(leaves: str) -> None:
    last = 2 * len(leaves) + 1
    assert references(*[leaves] * last, leaves + "z") == ones(leaves + "z")
    assert references(*[leaves] * (last + 1), leaves + "z") == ones(leaves, leaves + "z")


def test_only_leaves_that_were_compared_make_it_young() -> None:
    """The row that brought ``b`` in was compared with one leaf only."""
    assert references("a", "a", "a", "ab", "abc") == ones("ab", "abc")
    assert references("a", "a", "ab", "ab", "abc") == ones("abc")


def test_rows_without_value_belong_to_the_section_but_do_not_end_its_youth() -> None:
    assert references("a", *[None] * 12, "ab") == ones("ab")
    assert references("a", None, None, None, "ab", "abc") == ones("ab", "abc")


def test_an_empty_object_cannot_be_left_out() -> None:
    assert references({"s": {}, "a": 1}, {"a": 1}) == [{"s": {}, "a": 1}, {"a": 1}]
    assert references({"s": {}, "a": 1}, None) == [{"s": {}, "a": 1}, 1]
    assert references({"s": {"x": 1}}, {"s": {}, "a": 1}) == [{"s": {"x": 1}}, {"s": {}, "a": 1}]
    assert references({"s": {}, "a": 1}, {"s": {}, "b": 2}) == [{"s": {}, "a": 1, "b": 2}]


def test_objects_without_leaves_begin_no_section() -> None:
    assert references({}, {"s": {}}, "a", {}) == [2, {"a": 1}, 1]
    assert references({"s": {}, "a": 1}, {"s": {}}) == [{"s": {}, "a": 1}]


def test_objects_and_arrays_do_not_mix() -> None:
    assert references({"0": 1}, [1]) == [{"0": 1}, {"0": 1}]
    assert references({"s": [1]}, {"s": {"0": 1}}) == [{"s": [1]}, {"s": {"0": 1}}]
    assert references({"s": 1}, {"s": {"0": 1}}) == [{"s": 1}, {"s": {"0": 1}}]


def test_repeated_names_and_huge_objects_stay_whole() -> None:
    twice = RawBSONDocument(raw.document([b"\x10a\0\1\0\0\0", b"\x10a\0\2\0\0\0"]))
    huge = {str(number): 1 for number in range(1000)}
    deep: dict[str, Any] = {"a": 1}
    for _ in range(100):
        deep = {"a": deep}
    assert references(twice, huge, deep) == [3]


@pytest.mark.parametrize("value", [MinKey(), MaxKey(), Code("x", {"y": 1})])
def test_what_cannot_be_compressed_is_found_inside(value: Any) -> None:
    """W9."""
    with pytest.raises(Incompressible):
        sections([cell({"a": [{"b": value}]})])
    assert encode_column([cell({"a": [{"b": value}]})]) is None


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("value", [MinKey(), MaxKey(), Code("x", {"y": 1})])
def test_it_is_found_in_what_is_not_taken_apart(kernel: str, value: Any) -> None:
    """W9: in objects that are too wide or too deep, behind the point at which that is known."""
    deep: dict[str, Any] = {"x": [value]}
    for _ in range(120):
        deep = {"a": deep}
    times = {str(row): DatetimeMS(1000 * row) for row in range(4)}
    padding = {str(row): "x" * 20_000 for row in range(4)}
    for large in ({**{str(name): name for name in range(1200)}, "x": [value]}, deep):
        for kept in (large, {"other": 1}):
            columns = {"t": times, "o": {"2": kept}, "padding": padding}
            control = {"version": 1, "min": {}, "max": {}}
            document = encode({"_id": ObjectId(), "control": control, "data": columns})
            assert (KERNELS[kernel].compressed(document, b"t") is None) is (kept is large)


def test_leaves_are_written_when_a_reader_needs_them() -> None:
    """As 6.0.5 writes it: one block for each leaf; the first one's is used up first."""
    stream = encode_column([cell({"a": row, "b": "long enough to be literal" + "x" * (row == 2)}) for row in range(3)])
    reference = encode({"a": 0, "b": "long enough to be literal"})
    block_a = (0x0C | 2 << 24 | 2 << 44).to_bytes(8, "little")
    block_b = (0x0D).to_bytes(8, "little")
    literal = b"\x02\0" + raw.string_value(b"long enough to be literalx")[1:]
    assert stream == b"\xf1" + reference + b"\x80" + block_a + b"\x80" + block_b + literal + b"\0\0"


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_both_forms_know_the_limits(kernel: str) -> None:
    """The largest object that is taken apart, and the first that is not."""
    for fields in (9, 998, 999, 1000):
        objects = {str(row): {str(name): row for name in range(fields)} for row in range(4)}
        times = {str(row): DatetimeMS(1000 * row) for row in range(4)}
        document = encode(
            {"_id": ObjectId(bytes(12)), "control": {"version": 1}, "data": {"t": times, "o": objects}},
        )
        smaller = KERNELS[kernel].compressed(document, b"t")
        column = decode(smaller)["data"]["o"]
        assert column[0] == (0xF1 if fields < 1000 else raw.OBJECT)
        assert bytes(column) == encode_column([cell(row) for row in objects.values()])
