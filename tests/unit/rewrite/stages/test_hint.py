"""Hints in the user's schema (I1, I11)."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.stages.hint import bucket_hint
from tests.support.scopes import SCOPE


@pytest.mark.parametrize(
    ("hint", "mapped"),
    [
        ("name", "name"),
        ({"$natural": -1}, {"$natural": -1}),
        ({"t": 1}, {"control.min.t": 1, "control.max.t": 1}),
        ({"m.a": "hashed", "t": -1}, {"meta.a": "hashed", "control.max.t": -1, "control.min.t": -1}),
        ({"v": -2.5}, {"control.max.v": -2.5, "control.min.v": -2.5}),
        ({"g": "2dsphere"}, {"data.g": "2dsphere_bucket"}),
        ({"_id": 1}, {"control.min._id": 1, "control.max._id": 1}),
    ],
)
def test_hints(hint: Any, mapped: Any) -> None:
    assert bucket_hint(hint, SCOPE) == mapped
    assert list(bucket_hint(hint, SCOPE)) == list(mapped)
