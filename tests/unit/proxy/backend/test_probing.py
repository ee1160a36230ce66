"""What the backend can do; servers without time-series collections: tests/clients/without_timeseries.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.probing import UNKNOWN_STAGE, profile_of, unpacks_buckets, without_timeseries
from rewrite.profile import Profile
from tests.support.mongod import MongodProcess

HELLO: dict[str, Any] = {"maxWireVersion": 17}


@pytest.mark.parametrize(
    ("hello", "build", "profile"),
    [
        ({}, [6, 0, 5, 0], Profile((6, 0, 5))),
        ({"setName": "rs0"}, [7, 0, 1, 0], Profile((7, 0, 1), is_replica_set=True)),
        ({"msg": "isdbgrid"}, [5, 0, 4, 0], Profile((5, 0, 4), is_mongos=True)),
    ],
)
def test_what_rewriting_needs_to_know(hello: dict[str, Any], build: list[int], profile: Profile) -> None:
    assert profile_of({**HELLO, **hello}, {"versionArray": build}) == profile


@pytest.mark.parametrize("build", [{}, {"versionArray": [6]}])
def test_a_server_without_a_version_is_none(build: dict[str, Any]) -> None:
    profile = {"version": "?", **build}
    if "versionArray" in build:
        with pytest.raises(CommandError, match="no usable version"):
            profile_of(HELLO, profile)
    else:
        assert profile_of(HELLO, profile).version == (0, 0, 0)


async def test_a_server_that_unpacks_buckets(mongod: MongodProcess) -> None:
    before = mongod.shared_client.admin.list_collection_names()

    async def run(database: str, body: dict[str, Any]) -> Mapping[str, Any]:
        return mongod.shared_client[database].command(body)

    assert await unpacks_buckets(run)
    assert mongod.shared_client.admin.list_collection_names() == before


@pytest.mark.parametrize(("code", "expected"), [(UNKNOWN_STAGE, False), (13, True), (9, True)])
async def test_only_an_unknown_stage_means_that_there_are_no_buckets(code: int, expected: bool) -> None:
    async def run(database: str, body: dict[str, Any]) -> Mapping[str, Any]:
        raise CommandError(code, "refused")

    assert await unpacks_buckets(run) is expected


async def test_a_backend_that_is_lost_meanwhile_says_nothing() -> None:
    async def run(database: str, body: dict[str, Any]) -> Mapping[str, Any]:
        raise BackendUnavailable("gone")

    with pytest.raises(BackendUnavailable):
        await unpacks_buckets(run)


@pytest.mark.parametrize("profile", [Profile((4, 4, 2)), Profile((8, 2, 11), unpacks_buckets=False)])
def test_what_does_not_work(profile: Profile) -> None:
    assert without_timeseries(Profile()) == ""
    assert profile.shown_version in without_timeseries(profile)
    assert "creating a time-series collection is refused" in without_timeseries(profile)
