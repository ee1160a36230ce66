"""Which summaries are those of the rows, for both forms of the kernel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, decode
from hypothesis import given
from hypothesis import strategies as st

from catalog.bson import raw
from catalog.bson.codec import CODEC, encode
from catalog.kernel.documents import bucket_document
from catalog.kernel.minmax import greatest_of, least_of
from tests.support.kernels import COMPILED, INTERPRETED, KERNELS

FORMS = pytest.mark.parametrize("form", KERNELS.values(), ids=KERNELS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
START_MS = 1_700_000_040_000


def bucket(*rows: dict[str, Any], start_ms: int = START_MS, meta: bool = True) -> bytes:
    """Its summaries by the functions that take values of any kind."""
    columns: dict[bytes, list[tuple[int, bytes]]] = {b"t": []}
    for number, row in enumerate(rows):
        for name, value in raw.fields_of(encode({"t": DatetimeMS(START_MS + number), **row})).items():
            columns.setdefault(name, []).append((number, value))
    start = b"\x09" + raw.pack_int64(start_ms)
    ends = []
    for name, cells in columns.items():
        every = [start] * (name == b"t") + [value for _, value in cells]
        ends.append((name, least_of(every), greatest_of(every)))
    made = [(name, [raw.element(b"%d" % row, value) for row, value in cells]) for name, cells in columns.items()]
    return bucket_document(b"twelve bytes", b"\x10\1\0\0\0" if meta else b"", ends, made)


def changed(document: bytes, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    content = decode(document, codec_options=CODEC)
    change(content["control"]["min"], content["control"]["max"])
    return encode(content)


ROWS: list[dict[str, Any]] = [
    {"a": 1, "o": {"x": 1, "y": [1, {"z": 2}], "e": {}}, "s": "b", "k": MinKey()},
    {"a": 2.5, "s": "a", "b": Binary(b"xy", 5), "d": Decimal128("1.5")},
    {"a": Int64(-3), "o": {"y": [0, {"z": 3, "w": None}, "more"], "x": 5}, "s": "bb", "d": Decimal128("-7")},
    {"a": float("nan"), "r": Regex("a", "i"), "c": Code("x", {"y": 1}), "m": MaxKey(), "i": ObjectId(), "n": None},
    {"a": 2, "t": DatetimeMS(START_MS + 99), "ts": Timestamp(5, 1), "b": Binary(b"zzz", 0), "f": True},
]
FALSE: list[Callable[[dict[str, Any], dict[str, Any]], object]] = [
    lambda least, _: least.update(a=-3),
    lambda least, _: least.update(a=float("-inf")),
    lambda _, most: most.update(a=2.6),
    lambda _, most: most.update(a=2),
    lambda least, _: least.update(t=DatetimeMS(START_MS + 1)),
    lambda least, _: least.update(t=START_MS),
    lambda _, most: most.update(t=DatetimeMS(START_MS + 100)),
    lambda _, most: most.update(t=DatetimeMS(START_MS + 98)),
    lambda least, _: least.pop("s"),
    lambda _, most: most.pop("n"),
    lambda least, _: least.update(another=1),
    lambda least, _: least["o"].update(x=2),
    lambda _, most: most["o"]["y"].pop(),
    lambda _, most: most["o"]["y"].append(1),
    lambda _, most: most["o"]["y"][1].update(z=2),
    lambda _, most: most["o"]["y"][1].pop("w"),
    lambda least, _: least["o"].pop("e"),
    lambda least, _: least["o"]["e"].update(more=1),
    lambda least, _: least.update(o=1),
    lambda least, _: least.update(o=[]),
    lambda _, most: most.update(b=Binary(b"xy", 5)),
    lambda _, most: most.update(d=Decimal128("1.6")),
    lambda least, _: least.update(d=Decimal128("-6")),
    lambda _, most: most.update(s="c"),
    lambda least, _: least.update(s=None),
    lambda _, most: most.update(f=False),
]


@FORMS
def test_summaries_of_the_rows(form: Any) -> None:
    assert form.has_true_header(bucket(*ROWS), b"t")
    assert form.has_true_header(bucket(*ROWS, start_ms=START_MS - 40_000), b"t")


@FORMS
@pytest.mark.parametrize("change", FALSE)
def test_others_are_noticed(form: Any, change: Any) -> None:
    assert not form.has_true_header(changed(bucket(*ROWS), change), b"t")


@FORMS
def test_of_equal_values_any_may_stand_there(form: Any) -> None:
    """W21."""
    equal = changed(bucket({"a": 1, "d": Decimal128("2.50")}), lambda least, _: least.update(a=1.0, d=2.5))
    assert form.has_true_header(equal, b"t")


@FORMS
def test_of_several_classes_the_lowest_and_the_highest(form: Any) -> None:
    """W28: buckets of 5.0 may hold values of several kinds."""
    mixed = bucket({"a": 5, "o": {"x": 1}}, {"a": {"b": 1}, "o": {"x": [1]}}, {"a": {"b": 7, "c": 1}, "o": {"x": "s"}})
    assert form.has_true_header(mixed, b"t")
    assert not form.has_true_header(changed(mixed, lambda least, _: least.update(a={"b": 1, "c": 1})), b"t")
    assert not form.has_true_header(changed(mixed, lambda _, most: most.update(a=5)), b"t")


@FORMS
def test_a_field_without_a_name_may_have_none_where_there_is_no_meta(form: Any) -> None:
    """W27."""
    for meta in (True, False):
        nameless = bucket({"": 1}, {"": 2}, meta=meta)
        assert form.has_true_header(nameless, b"t")
        without = changed(nameless, lambda least, most: (least.pop(""), most.pop("")))
        assert form.has_true_header(without, b"t") is not meta


@FORMS
def test_times_out_of_the_ordinary(form: Any) -> None:
    for time in (-(2**62), -1, 0, 2**62):
        document = bucket({"t": DatetimeMS(time)}, {"t": DatetimeMS(time + 5)}, start_ms=time - 7)
        assert form.has_true_header(document, b"t")
        late = changed(document, lambda least, _, time=time: least.update(t=DatetimeMS(time + 1)))  # type: ignore[misc]
        assert not form.has_true_header(late, b"t")


@FORMS
@pytest.mark.parametrize("other", [b"", b"no document", encode({}), encode({"control": 1}), encode({"control": {}})])
def test_what_is_no_bucket(form: Any, other: bytes) -> None:
    assert not form.has_true_header(other, b"t")


@FORMS
def test_a_compressed_bucket_is_not_one_of_them(form: Any) -> None:
    packed = form.compressed(bucket(*[{"a": number, "p": "x" * 200} for number in range(50)]), b"t")
    assert not form.has_true_header(packed, b"t")


@given(rows=st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), max_size=5), seed=st.integers(0))
def test_both_forms_find_the_same(rows: list[dict[str, Any]], seed: int) -> None:
    """Of true summaries, and of those with values of other rows."""
    true = bucket({}, *rows)
    false = changed(true, lambda least, most: random.Random(seed).choice((least, most)).update(a=seed % 3))
    for document in (true, false):
        answers = {form.has_true_header(document, b"t") for form in (COMPILED or INTERPRETED, INTERPRETED)}
        assert len(answers) == 1
    assert INTERPRETED.has_true_header(true, b"t")
