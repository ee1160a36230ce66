"""Distinct values of meta paths from headers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewrite.stages.distinct import distinct_from_headers, values_stage
from tests.support.scopes import SCOPE, draft

REST = {"$unwind": "$_internalUnwoundArray"}


def test_each_series_once() -> None:
    after = distinct_from_headers(draft(values_stage("m.a.b"), REST), SCOPE)
    assert after.head == ({"$group": {"_id": "$meta"}},)
    assert (after.tail, after.unpacks) == ((values_stage("_id.a.b"), REST), False)


def test_missing_meta_is_no_value() -> None:
    """W35: a group would make null of it."""
    after = distinct_from_headers(draft(values_stage("m"), REST), SCOPE)
    assert (after.head, after.tail) == ((), (values_stage("meta"), REST))


@pytest.mark.parametrize(
    "before",
    [
        draft(),
        draft(values_stage("v"), REST),
        draft({"$match": {"v": 1}}, values_stage("m.a"), REST),
        draft({"$replaceRoot": {"newRoot": "$m"}}),
        draft({"$replaceRoot": {"newRoot": {"a": 1}}}),
    ],
)
def test_what_needs_rows(before: object) -> None:
    assert distinct_from_headers(before, SCOPE) == before  # type: ignore[arg-type]
    odd = replace(SCOPE, time_field="")
    assert distinct_from_headers(draft(values_stage("m.a")), odd) == draft(values_stage("m.a"))
