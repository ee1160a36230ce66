"""Shapes: what may stand beside what in one bucket (W47)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.bson import raw
from catalog.kernel.schema import compatible, grow, merge, shape_of


def value_of(value: Any) -> bytes:
    return raw.fields_of(bson.encode({"v": value}))[b"v"]


def test_a_shape_has_every_path() -> None:
    shape = shape_of(value_of({"a": 1, "b": [{"c": "x"}, None]}))
    assert shape == {b"a": 10, b"b": [{b"c": 15}, 5]}


@pytest.mark.parametrize("value", [{}, {"a": 2.5}, {"z": []}, {"b": []}, {"b": [{}]}, {"b": [{"c": "y", "d": 1}]}])
def test_missing_and_new_paths_are_compatible(value: Any) -> None:
    assert compatible(shape_of(value_of({"a": 1, "b": [{"c": "x"}, None]})), value_of(value))


@pytest.mark.parametrize("value", [1, [], {"a": "x"}, {"b": {}}, {"b": [{"c": 1}]}, {"b": [{}, 1]}, {"a": None}])
def test_another_kind_at_a_known_path_is_not(value: Any) -> None:
    assert not compatible(shape_of(value_of({"a": 1, "b": [{"c": "x"}, None]})), value_of(value))


def test_shapes_grow() -> None:
    shape = shape_of(value_of({"a": [1], "o": {}}))
    grow(shape, value_of({"a": [1, "x"], "o": {"n": None}}))
    assert shape == {b"a": [10, 15], b"o": {b"n": 5}}


def test_shapes_merge_or_contradict() -> None:
    """W50: the schema of a stored bucket comes from both summaries."""
    left, right = shape_of(value_of({"a": [1]})), shape_of(value_of({"a": [2, "x"], "b": 1}))
    assert merge(left, right) == {b"a": [10, 15], b"b": 10}
    assert merge(left, shape_of(value_of({"a": ["x"]}))) is None
    assert merge(left, shape_of(value_of([]))) is None
    assert merge(shape_of(value_of({"a": {"b": 1}})), shape_of(value_of({"a": {"b": None}}))) is None
