"""Bounds on one measurement (Q13, Q16); ``test_predicate`` has the operands."""

from __future__ import annotations

import pytest

from rewrite.stages.measurement_bounds import LONGEST_PATH, conjunction, is_plain_path, measurement_predicate
from tests.support.scopes import SCOPE


def test_the_time_field_has_bounds_of_its_own() -> None:
    assert measurement_predicate("t.a", {"$gt": 3}, SCOPE) is None


@pytest.mark.parametrize(
    ("path", "plain"),
    [("v", True), ("v.a", True), ("", False), ("v..a", False), ("v.$a", False), ("a\0", False),
     ("v" * LONGEST_PATH, True), ("v" * (LONGEST_PATH + 1), False)],
)  # fmt: skip
def test_paths_that_can_be_spelled(path: str, *, plain: bool) -> None:
    assert is_plain_path(path) is plain


def test_conditions_on_the_same_field_stay_apart() -> None:
    assert conjunction([{"a": 1}, {"b": 2}]) == {"a": 1, "b": 2}
    assert conjunction([{"a": 1}, {"a": 2}]) == {"$and": [{"a": 1}, {"a": 2}]}
    assert conjunction([]) is None
