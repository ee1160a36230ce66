"""Which expressions have one value for a whole command (Q19)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from rewrite.stages.constants import MOST_PARTS, is_constant, is_near_now, is_time_of_ids, literal
from tests.support.scopes import SCOPE

DATE = DatetimeMS(1_700_000_000_000)
LET: dict[str, Any] = {
    "since": DATE, "early": DatetimeMS(5), "lately": {"$subtract": ["$$NOW", 5]}, "text": "a",
    "value": {"$literal": "$x"}, "object": {"a": DATE}, "other": "$$NOW",
}  # fmt: skip
KNOWN = replace(SCOPE, variables=LET)
HOUR_AGO = {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": 1}}


@pytest.mark.parametrize(
    "expression",
    [
        1, None, "text", DATE, [1, "$$NOW"], "$$NOW", "$$since", "$$object.a", HOUR_AGO, {"$literal": "$x"},
        {"$add": ["$$since", {"$multiply": [60, 1000]}]}, {"$dateTrunc": {"date": HOUR_AGO, "unit": "day"}},
    ],
)  # fmt: skip
def test_constants(expression: Any) -> None:
    assert is_constant(expression, KNOWN)


@pytest.mark.parametrize(
    "expression",
    [
        "$v", "$$ROOT", "$$CURRENT.v", "$$unknown", "$$REMOVE", {"$rand": {}}, {"$add": [1, "$v"]},
        {"$let": {"vars": {"a": 1}, "in": "$$a"}}, {"$getField": "v"}, {"$cond": [True, 1, 2]}, {"$literal": [1]},
        list(range(MOST_PARTS)),
    ],
)  # fmt: skip
def test_what_may_differ_from_row_to_row_or_is_not_calculated_in_advance(expression: Any) -> None:
    assert not is_constant(expression, KNOWN)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (1, (1,)), (None, (None,)), ({"$literal": "$x"}, ("$x",)), ("a", ("a",)), ("$$since", (DATE,)),
        ("$$value", ("$x",)), ("$$NOW", None), ("$$other", None), ("$$object", None), ("$$object.a", None),
        ([1], None), (HOUR_AGO, None), ("$v", None), ("$since", None),
    ],
)  # fmt: skip
def test_literals(expression: Any, value: tuple[Any] | None) -> None:
    assert literal(expression, KNOWN) == value


@pytest.mark.parametrize(
    "expression",
    [
        "$$NOW", HOUR_AGO, "$$lately", "$$other", {"$subtract": [HOUR_AGO, {"$multiply": [7, 86_400_000]}]},
        {"$add": [5, "$$NOW"]}, {"$dateTrunc": {"date": HOUR_AGO, "unit": "month", "timezone": "Europe/Paris"}},
        {"$dateAdd": {"startDate": "$$NOW", "unit": "year", "amount": -19}},
        {"$dateAdd": {"startDate": DATE, "unit": "hour", "amount": 1}},
    ],
)  # fmt: skip
def test_dates_near_now(expression: Any) -> None:
    assert is_near_now(expression, KNOWN)
    assert is_time_of_ids(expression, KNOWN)


@pytest.mark.parametrize(
    "expression",
    [
        5, "$t", "$$early", "$$text", {"$subtract": ["$$NOW", "$$NOW"]}, {"$toDate": "$$NOW"}, {"$add": [5, 5]},
        {"$dateSubtract": {"startDate": "$$NOW", "unit": "year", "amount": 21}},
        {"$dateSubtract": {"startDate": HOUR_AGO, "unit": "year", "amount": 20}},
        {"$dateSubtract": {"startDate": "$$NOW", "unit": "age", "amount": 1}},
        {"$dateSubtract": {"startDate": "$$NOW", "unit": "hour", "amount": "$v"}},
        {"$dateTrunc": {"date": "$$NOW", "unit": "year", "binSize": 100}},
        {"$subtract": ["$$NOW", {"$multiply": [True, 5]}]},
        {"$dateAdd": {"startDate": DatetimeMS(5), "unit": "hour", "amount": 1}},
        {"$dateAdd": {"startDate": DatetimeMS(2**32 * 1000), "unit": "hour", "amount": -1}},
    ],
)  # fmt: skip
def test_what_may_be_far_from_now(expression: Any) -> None:
    assert not is_near_now(expression, KNOWN)


def test_dates_for_which_bucket_ids_do_not_wrap() -> None:
    """H2: those in the predicate are judged there, those of variables here."""
    assert [is_time_of_ids(constant, KNOWN) for constant in (DATE, "$$since", DatetimeMS(5))] == [True] * 3
    assert [is_time_of_ids(constant, KNOWN) for constant in ("$$early", "$$text", 5, {"$toDate": 5})] == [False] * 4
