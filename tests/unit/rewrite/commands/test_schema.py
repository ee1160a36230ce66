"""What schema commands mean for the proxy (W72)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError, code_name
from catalog.namespaces import Namespace
from rewrite.plan import ClearBuckets, DropNamespace, Effect, ForgetNamespace, PassThrough, Request
from rewrite.profile import Profile
from rewrite.registry import REWRITERS

X = Namespace("db", "x")
BUCKETS = Namespace("db", "system.buckets.x")
DATABASE = Namespace("db", "")


def plan_of(namespace: Namespace, **body: Any) -> object:
    """The plan of a command, which its first argument names."""
    name = next(iter(body))
    return REWRITERS[name](Request(name, namespace, body, None, Profile()))


@pytest.mark.parametrize(
    ("namespace", "body", "effects"),
    [
        (X, {"create": "x"}, (ForgetNamespace(X),)),
        (BUCKETS, {"create": "system.buckets.x"}, (ForgetNamespace(X),)),
        (X, {"collMod": "x"}, (ClearBuckets(X), ForgetNamespace(X))),
        (BUCKETS, {"collMod": "system.buckets.x"}, (ClearBuckets(X), ForgetNamespace(X))),
        (X, {"drop": "x"}, (DropNamespace(X),)),
        (BUCKETS, {"drop": "system.buckets.x"}, (DropNamespace(X),)),
        (DATABASE, {"dropDatabase": 1}, (DropNamespace(DATABASE),)),
        (
            Namespace("admin", ""),
            {"renameCollection": "db.a", "to": "other.b"},
            (ForgetNamespace(Namespace("db", "a")), ForgetNamespace(Namespace("other", "b"))),
        ),
        (BUCKETS, {"update": "system.buckets.x"}, (ClearBuckets(X),)),
        (BUCKETS, {"delete": "system.buckets.x"}, (ClearBuckets(X),)),
        (BUCKETS, {"findAndModify": "system.buckets.x"}, (ClearBuckets(X),)),
    ],
)
def test_w72_the_backend_answers_and_the_catalog_lets_go(
    namespace: Namespace, body: dict[str, Any], effects: tuple[Effect, ...]
) -> None:
    """Also when the client names the bucket collection itself."""
    assert plan_of(namespace, **body) == PassThrough(effects)


@pytest.mark.parametrize("command", ["cloneCollectionAsCapped", "convertToCapped"])
def test_h1_buckets_are_never_cloned_as_capped(command: str) -> None:
    """It would end the server's process."""
    with pytest.raises(CommandError) as refused:
        plan_of(BUCKETS, **{command: "system.buckets.x", "size": 1000})
    assert (refused.value.code, refused.value.message) == (166, "Namespace db.x is a timeseries collection")
    assert plan_of(X, **{command: "x", "size": 1000}) == PassThrough()


@pytest.mark.parametrize("profile", [Profile((4, 4, 2)), Profile((8, 2, 11), unpacks_buckets=False)])
def test_no_time_series_collection_is_created_where_there_are_none(profile: Profile) -> None:
    def plan(**options: Any) -> object:
        body = {"create": "x", **options}
        return REWRITERS["create"](Request("create", X, body, None, profile))

    with pytest.raises(CommandError, match=rf"db\.x was not created: .* {profile.shown_version}, ") as refused:
        plan(timeseries={"timeField": "t"})
    assert (refused.value.code, code_name(refused.value.code)) == (115, "CommandNotSupported")
    assert plan(capped=True, size=4096) == PassThrough((ForgetNamespace(X),))
