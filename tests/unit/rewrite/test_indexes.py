"""Index keys on buckets (I1, I2, I11)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Granularity, TimeseriesOptions
from rewrite.indexes import bucket_hint, bucket_key

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
WITHOUT_META = TimeseriesOptions("t", None, Granularity.SECONDS, 3600, 60)

KEYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"t": 1}, {"control.min.t": 1, "control.max.t": 1}),
    ({"t": -1}, {"control.max.t": -1, "control.min.t": -1}),
    ({"t": 2.5}, {"control.min.t": 2.5, "control.max.t": 2.5}),
    ({"m": 1}, {"meta": 1}),
    ({"m": "hashed"}, {"meta": "hashed"}),
    ({"m.p": "2d"}, {"meta.p": "2d"}),
    ({"m.p.q": "2dsphere"}, {"meta.p.q": "2dsphere"}),
    ({"m.$**": 1}, {"meta.$**": 1}),
    ({"m.p.$**": 1}, {"meta.p.$**": 1}),
    ({"v": 1}, {"control.min.v": 1, "control.max.v": 1}),
    ({"v": -3}, {"control.max.v": -3, "control.min.v": -3}),
    ({"_id": 1}, {"control.min._id": 1, "control.max._id": 1}),
    ({"v.w": -1}, {"control.max.v.w": -1, "control.min.v.w": -1}),
    ({"v": "2dsphere"}, {"data.v": "2dsphere_bucket"}),
    ({"mm": 1}, {"control.min.mm": 1, "control.max.mm": 1}),
    ({"meta": 1}, {"control.min.meta": 1, "control.max.meta": 1}),
    ({"control.min.t": 1}, {"control.min.control.min.t": 1, "control.max.control.min.t": 1}),
    (
        {"m.a": 1, "t": -1, "v": 1},
        {"meta.a": 1, "control.max.t": -1, "control.min.t": -1, "control.min.v": 1, "control.max.v": 1},
    ),
]


@pytest.mark.parametrize(("user", "bucket"), KEYS, ids=[str(user) for user, _ in KEYS])
def test_i1_keys_map_in_order(user: dict[str, Any], bucket: dict[str, Any]) -> None:
    """Every row of the table of I1; the order of the elements is part of a key."""
    assert list(bucket_key(user, OPTIONS).items()) == list(bucket.items())


def test_i1_without_a_meta_field_every_name_is_a_measurement() -> None:
    assert bucket_key({"m": 1}, WITHOUT_META) == {"control.min.m": 1, "control.max.m": 1}


@pytest.mark.parametrize(
    ("key", "code", "message"),
    [
        (
            {"t": "hashed"},
            67,
            (
                'BadValue: Invalid index spec for time-series collection: { t: "hashed" }. '
                'Indexes on the time field must be ascending or descending (numbers only): t: "hashed"'
            ),
        ),
        (
            {"v": "hashed"},
            67,
            (
                'BadValue: Invalid index spec for time-series collection: { v: "hashed" }. Indexes on measurement '
                "fields must be ascending or descending (numbers only), or '2dsphere': v: \"hashed\""
            ),
        ),
        (
            {"m": 1, "v": True},
            67,
            (
                "BadValue: Invalid index spec for time-series collection: { m: 1, v: true }. Indexes on measurement "
                "fields must be ascending or descending (numbers only), or '2dsphere': v: true"
            ),
        ),
        ({}, 67, "BadValue: Empty object is not a valid index spec"),
        ({"m": "text"}, 72, "Text indexes are not supported on time-series collections"),
        ({"v": "text"}, 72, "Text indexes are not supported on time-series collections"),
    ],
)
def test_i2_keys_that_no_bucket_index_serves(key: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        bucket_key(key, OPTIONS)
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(
    ("hint", "mapped"),
    [
        ("t_1", "t_1"),
        ({"$natural": -1}, {"$natural": -1}),
        ({"t": 1}, {"control.min.t": 1, "control.max.t": 1}),
        ({"m.a": "hashed", "t": -1}, {"meta.a": "hashed", "control.max.t": -1, "control.min.t": -1}),
        ({"v": -2.5}, {"control.max.v": -2.5, "control.min.v": -2.5}),
        ({"g": "2dsphere"}, {"data.g": "2dsphere_bucket"}),
        ({"_id": 1}, {"control.min._id": 1, "control.max._id": 1}),
        ({"t": "hashed"}, {"t": "hashed"}),
        ({}, {}),
        (5, 5),
    ],
)
def test_i11_hints(hint: Any, mapped: Any) -> None:
    """What no bucket index can serve is left for the server to refuse."""
    assert bucket_hint(hint, OPTIONS) == mapped
    if isinstance(hint, dict):
        assert list(bucket_hint(hint, OPTIONS)) == list(mapped)
