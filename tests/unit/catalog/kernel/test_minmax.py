"""Control summaries, with the examples that were seen on 6.0.5."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64

from catalog.bson import raw
from catalog.kernel.minmax import (
    BOTH_CHANGED,
    MAX_CHANGED,
    MIN_CHANGED,
    greatest_of,
    least_of,
    summary_between,
    summary_of,
)

NAN = float("nan")


def value_of(value: Any) -> bytes:
    return raw.fields_of(bson.encode({"v": value}))[b"v"]


def ends_of(values: list[Any]) -> tuple[bytes, bytes]:
    summary = summary_of(value_of(values[0]))
    for value in values[1:]:
        summary.fold(value_of(value))
    return summary.ends()


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([1, 1.0], 1, 1),
        ([1.0, 1], 1.0, 1.0),
        ([Int64(1), Decimal128("1.00"), 1], Int64(1), Int64(1)),
        ([0.0, -0.0], 0.0, 0.0),
        ([1, NAN, float("inf")], NAN, float("inf")),
        (["b", "A", "a", "B"], "A", "b"),
        ([Binary(b"zz", 0), Binary(b"a", 5), Binary(b"a", 4)], Binary(b"a", 4), Binary(b"zz", 0)),
        ([None, None], None, None),
        (
            [{"a": 1, "b": {"c": 5}}, {"a": 3, "b": {"c": 2, "d": 7}}, {"b": {"c": 9}}],
            {"a": 1, "b": {"c": 2, "d": 7}},
            {"a": 3, "b": {"c": 9, "d": 7}},
        ),
        ([{}, {"a": 1}], {"a": 1}, {"a": 1}),
        ([{"a": 1}, {}], {"a": 1}, {"a": 1}),
        ([{}], {}, {}),
        ([[1, 5, 3], [4, 2], [0, 9, 9, 9]], [0, 2, 3, 9], [4, 9, 9, 9]),
        ([[{"a": 1}], [{"a": 0, "b": 1}]], [{"a": 0, "b": 1}], [{"a": 1, "b": 1}]),
    ],
)
def test_folding(values: list[Any], least: Any, greatest: Any) -> None:
    """W21 to W26."""
    assert ends_of(values) == (value_of(least), value_of(greatest))


def test_folding_says_what_changed() -> None:
    """W121: only changed summaries are written."""
    summary = summary_of(value_of({"a": 5}))
    steps = [({"a": 5}, 0), ({"a": 4}, MIN_CHANGED), ({"a": 6}, MAX_CHANGED), ({"b": 1}, BOTH_CHANGED), ({}, 0)]
    assert [summary.fold(value_of(value)) for value, _ in steps] == [changed for _, changed in steps]


def test_of_different_classes_the_lower_and_the_higher_win() -> None:
    """W28: which only buckets of somebody else could need."""
    assert ends_of(["x", 1, False]) == (value_of(1), value_of(False))


def test_repeated_names_inside_an_object_count_once() -> None:
    repeated = b"\x03" + raw.document((b"\x10a\0\1\0\0\0", b"\x02a\0\2\0\0\0x\0"))
    assert summary_of(repeated).ends()[0] == value_of({"a": 1})


def test_stored_ends_make_a_summary_that_folds_on() -> None:
    """W50."""
    least, greatest = {"a": [1, {"b": "c"}]}, {"a": [3.5, {"b": "d"}]}
    summary = summary_between(value_of(least), value_of(greatest))
    assert summary.ends() == (value_of(least), value_of(greatest))
    assert summary.fold(value_of({"a": [0, {"b": "e"}, 1]})) == BOTH_CHANGED
    assert summary.ends() == (value_of({"a": [0, {"b": "c"}, 1]}), value_of({"a": [3.5, {"b": "e"}, 1]}))


@pytest.mark.parametrize(("least", "greatest"), [(1, "x"), ({"a": 1}, {"b": 1}), (2, 1), ([1], [1, 2]), ({}, [])])
def test_ends_that_contradict_one_another_are_refused(least: Any, greatest: Any) -> None:
    with pytest.raises(ValueError, match="control"):
        summary_between(value_of(least), value_of(greatest))


def test_w28_of_mixed_kinds_the_lowest_and_the_highest_class_win_as_a_whole() -> None:
    """Scalars are less than objects, objects less than arrays, and what wins is merged within its class."""
    values = [value_of(value) for value in (5, {"a": 1, "b": "x"}, [3], 2, {"a": "s"}, [1, 9], {"b": 0})]
    assert decoded(least_of(values)) == 2
    assert decoded(greatest_of(values)) == [3, 9]
    assert decoded(greatest_of(values[:2] + values[4:5])) == {"a": "s", "b": "x"}
    assert decoded(least_of(values[1:2] + values[4:5] + values[6:])) == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    "values", [[1, 1.0, 0.5], [{"a": 1}, {}, {"b": {"c": 2}}, {"b": {"c": 1}}], [[1, 5], [4, 2, 0]]]
)
def test_w21_of_one_kind_the_ends_are_those_of_a_summary(values: list[Any]) -> None:
    column = [value_of(value) for value in values]
    summary = summary_of(column[0])
    for value in column[1:]:
        summary.fold(value)
    assert (least_of(column), greatest_of(column)) == summary.ends()


def decoded(value: bytes) -> Any:
    return bson.decode(raw.document([raw.element(b"v", value)]))["v"]
