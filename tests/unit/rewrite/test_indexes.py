"""Index keys both ways (I1, I2, I7, I11)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Granularity, TimeseriesOptions
from rewrite.indexes import bucket_hint, bucket_key, user_index, user_key

OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)
WITHOUT_META = TimeseriesOptions("t", None, Granularity.SECONDS, 3600, 60)

BOTH_WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
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


@pytest.mark.parametrize(("user", "bucket"), BOTH_WAYS, ids=[str(user) for user, _ in BOTH_WAYS])
def test_i1_i7_keys_map_both_ways_in_order(user: dict[str, Any], bucket: dict[str, Any]) -> None:
    """Every row of the table of I1, and back by I7; the order of the elements is part of a key."""
    assert list(bucket_key(user, OPTIONS).items()) == list(bucket.items())
    mapped = user_key(bucket, OPTIONS)
    assert mapped is not None
    assert list(mapped.items()) == list(user.items())


@pytest.mark.parametrize(
    ("bucket", "user"),
    [
        ({"control.min.t": 1}, {"t": 1}),
        ({"control.min.t": -1}, {"t": -1}),
        ({"control.min.t": 1, "control.max.t": -1}, {"t": 1}),
        ({"control.min.t": 1, "meta": 1, "control.max.t": 1}, {"t": 1, "m": 1}),
        ({"control.max.t": -1, "meta": 1}, {"m": 1}),
        ({"control.max.t": 1}, {}),
        ({"control.min.v": 1}, None),
        ({"control.min.v": -1, "control.max.v": -1}, None),
        ({"control.min.v": 1, "control.max.v": 2}, None),
        ({"control.min.v": 1, "meta": 1, "control.max.v": 1}, None),
        ({"data.v": 1}, None),
        ({"_id": 1}, None),
    ],
)
def test_i7_bucket_keys_made_by_hand(bucket: dict[str, Any], user: dict[str, Any] | None) -> None:
    """What 6.0.5 shows for indexes created directly on the bucket collection; ``None``: hidden."""
    assert user_key(bucket, OPTIONS) == user


def test_i1_without_a_meta_field_every_name_is_a_measurement() -> None:
    assert bucket_key({"m": 1}, WITHOUT_META) == {"control.min.m": 1, "control.max.m": 1}
    assert user_key({"meta": 1}, WITHOUT_META) is None


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


def test_i7_a_stored_original_spec_is_shown_as_it_is() -> None:
    spec = {
        "v": 2,
        "key": {"control.min.v": 1, "control.max.v": 1},
        "name": "v_1",
        "hidden": True,
        "originalSpec": {"key": {"v": 1}, "name": "v_1", "v": 2},
    }
    assert user_index(spec, OPTIONS) == {"key": {"v": 1}, "name": "v_1", "v": 2}


def test_i7_an_index_without_original_spec_is_mapped_or_hidden() -> None:
    assert user_index({"v": 2, "key": {"meta": 1}, "name": "m_1"}, OPTIONS) == {"v": 2, "key": {"m": 1}, "name": "m_1"}
    assert user_index({"v": 2, "key": {"_id": 1}, "name": "i"}, OPTIONS) is None


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
