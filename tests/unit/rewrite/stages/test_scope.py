"""What is known of a collection when its reads are rewritten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rewrite.profile import Profile
from rewrite.stages.scope import Scope, same_collation
from tests.support.scopes import SCOPE, TARGET

EN = {"locale": "en", "strength": 2}


@pytest.mark.parametrize(
    ("wanted", "stored", "same"),
    [
        (None, None, True),
        (None, EN, True),
        ({}, EN, True),
        ({"locale": "simple"}, None, True),
        ({"locale": "simple"}, EN, False),
        (EN, None, False),
        (EN, EN, True),
        (EN, {**EN, "caseLevel": False}, False),
        ("en", EN, False),
    ],
)
def test_collation_certainly_the_same(wanted: Any, stored: Any, same: bool) -> None:
    """Q14: an unexpanded locale is not certain, so strings are not bounded by it."""
    assert same_collation(wanted, stored) is same


@pytest.mark.parametrize("name", ["", "$t", "a.b", "a\0b"])
def test_names_that_no_path_can_spell(name: str) -> None:
    """C3."""
    assert SCOPE.plain_names
    assert not replace(SCOPE, time_field=name).plain_names
    assert not replace(SCOPE, meta_field=name).plain_names
    assert replace(SCOPE, meta_field=None).plain_names


def test_scope_of_a_collection() -> None:
    """The command's collation and transaction, the collection's options."""
    scope = Scope.of(replace(TARGET, extended_range=True), Profile(), EN, in_transaction=True)
    assert (scope.time_field, scope.meta_field, scope.span_seconds) == ("t", "m", 3600)
    assert scope.buckets == TARGET.buckets
    assert (scope.compares_like_buckets, scope.extended_range, scope.in_transaction) == (False, True, True)
