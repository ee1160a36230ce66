from __future__ import annotations

from typing import Any

import pytest

from catalog.namespaces import TimeseriesOptions
from rewrite.stages.meta_fields import meta_path, rename_update

OPTIONS = TimeseriesOptions("t", "m", None, 3600, 60)


@pytest.mark.parametrize(("path", "stored"), [("m", "meta"), ("m.a.b", "meta.a.b"), ("mm", None), ("a.m", None)])
def test_u3_paths_of_the_meta_field(path: str, stored: str | None) -> None:
    assert meta_path(path, OPTIONS) == stored
    assert meta_path(path, TimeseriesOptions("t", None, None, 3600, 60)) is None


@pytest.mark.parametrize(
    ("update", "renamed"),
    [
        ({"$set": {"m.a": 1}, "$unset": {"m.b": ""}}, {"$set": {"meta.a": 1}, "$unset": {"meta.b": ""}}),
        ({"$rename": {"m.a": "m.b"}}, {"$rename": {"meta.a": "meta.b"}}),
        ({"$rename": {"m.a": "b"}}, None),
        ({"$rename": {"m.a": 5}}, None),
        ({"$set": {"m.a": 1, "v": 2}}, None),
        ({"$set": 5}, None),
        ({}, {}),
    ],
)
def test_u3_updates_of_nothing_but_the_meta_field(update: dict[str, Any], renamed: dict[str, Any] | None) -> None:
    assert rename_update(update, OPTIONS) == renamed
