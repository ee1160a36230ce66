"""Which privileges, as servers list them, are enough for the proxy's account."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.backend.least_role import (
    BUCKET_ACTIONS,
    is_no_concern,
    least_privileges,
    listing,
    missing_privileges,
    missing_rights,
    on_buckets,
)

EVERYWHERE = {"db": "", "collection": ""}
LISTS = {"resource": EVERYWHERE, "actions": ["listCollections"]}


@pytest.mark.parametrize(
    "privileges",
    [
        [LISTS, {"resource": {"system_buckets": ""}, "actions": list(BUCKET_ACTIONS)}],
        [LISTS, {"resource": {"db": "app", "system_buckets": "c"}, "actions": list(BUCKET_ACTIONS)}],
        [LISTS, {"resource": {"db": "app", "collection": "system.buckets.c"}, "actions": list(BUCKET_ACTIONS)}],
        [{"resource": {"anyResource": True}, "actions": ["anyAction"]}],
    ],
)
def test_enough(privileges: list[dict[str, Any]]) -> None:
    assert missing_rights(privileges) == []


def test_what_is_missing_is_named() -> None:
    everything = f"{', '.join(BUCKET_ACTIONS)} on system_buckets"
    assert missing_rights([]) == ["listCollections", everything]
    plain = {"resource": EVERYWHERE, "actions": ["listCollections", *BUCKET_ACTIONS]}
    assert missing_rights([plain]) == [everything]
    some = {"resource": {"system_buckets": ""}, "actions": ["find", "insert", "update", "remove"]}
    assert missing_rights([LISTS, some]) == ["bypassDocumentValidation on system_buckets"]


def test_what_is_missing_is_a_privilege_to_grant() -> None:
    assert missing_privileges([]) == least_privileges()
    assert missing_privileges(least_privileges()) == []
    some = on_buckets(("find", "insert", "update", "remove"))
    assert missing_privileges([listing("listIndexes"), some]) == [on_buckets(["bypassDocumentValidation"])]


LIMITED = [
    {"resource": {"db": "app", "collection": ""}, "actions": ["listCollections"]},
    {"resource": {"db": "app", "system_buckets": ""}, "actions": list(BUCKET_ACTIONS)},
]
OF_OTHER = {"db": "other", "system_buckets": "c"}


@pytest.mark.parametrize(
    ("privileges", "database", "expected"),
    [
        (least_privileges(), "local", True),
        (least_privileges(), "config", True),
        (least_privileges(), "app", False),
        (LIMITED, "local", True),
        (LIMITED, "other", True),
        (LIMITED, "app", False),
        ([*LIMITED, {"resource": OF_OTHER, "actions": ["find"]}], "other", False),
        ([*LIMITED, {"resource": {"db": "other", "collection": ""}, "actions": ["listCollections"]}], "other", False),
        ([*LIMITED, {"resource": {"db": "local", "collection": ""}, "actions": ["listCollections"]}], "local", False),
        ([*LIMITED, {"resource": {"cluster": True}, "actions": ["listCollections"]}], "other", True),
        # Nothing that is required is there: it may have been revoked.
        ([], "local", False),
        ([], "other", False),
        ([LISTS], "local", True),
        (LIMITED[:1], "other", False),
        ([{"resource": {"anyResource": True}, "actions": ["anyAction"]}], "local", False),
    ],
)
def test_databases_of_no_concern(privileges: list[dict[str, Any]], database: str, expected: bool) -> None:
    assert is_no_concern(database, privileges) is expected
