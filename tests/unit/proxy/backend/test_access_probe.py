"""How time-series collections are accessed: chosen by facts, asked of a real server, and chosen anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.backend.access_probe import BUCKETS_CLOSED, AccessFacts, AccessProbe, Followers, access_of
from proxy.backend.least_role import least_privileges
from proxy.request.attempt import SERVER_CURSOR_TIMEOUT_SECONDS
from proxy.request.authorisation import AccessControl
from rewrite.profile import Access, Profile, Why
from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.own_server import own_server

LISTS = {"resource": {"db": "", "collection": ""}, "actions": ["listCollections"]}
READ_WRITE = {"resource": {"db": "d", "collection": ""}, "actions": ["find", "insert", "listCollections", "remove"]}
READ = {"resource": {"db": "d", "collection": ""}, "actions": ["find", "listCollections"]}


@pytest.mark.parametrize(
    ("facts", "access", "why"),
    [
        (AccessFacts((5, 0, 4)), Access.BUCKETS, Why.ABLE),
        (AccessFacts((7, 0, 28)), Access.BUCKETS, Why.ABLE),
        (AccessFacts((8, 0, 0)), Access.NATIVE, Why.VERSION),
        (AccessFacts((7, 0, 0), is_closed=True), Access.NATIVE, Why.CLOSED),
        (AccessFacts((6, 0, 5), is_mongos=True), Access.NATIVE, Why.SHARDED),
        (AccessFacts((6, 0, 5), privileges=least_privileges()), Access.BUCKETS, Why.ABLE),
        (AccessFacts((6, 0, 5), privileges=[READ_WRITE]), Access.NATIVE, Why.RIGHTS),
        # These would not be enough for native access either: /readyz says what is missing for buckets.
        (AccessFacts((6, 0, 5), privileges=[READ]), Access.BUCKETS, Why.ABLE),
        (AccessFacts((6, 0, 5), privileges=[LISTS]), Access.BUCKETS, Why.ABLE),
    ],
)
def test_what_is_chosen(facts: AccessFacts, access: Access, why: Why) -> None:
    assert access_of("auto", facts)[:2] == (access, why)
    for wanted in Access:
        assert access_of(wanted.value, facts) == (wanted, Why.CHOSEN, f"timeseries_access is {wanted.value}")


def test_the_reason_names_what_is_missing() -> None:
    _, _, reason = access_of("auto", AccessFacts((6, 0, 5), privileges=[READ_WRITE]))
    assert reason == (
        "the backend's account lacks find, insert, update, remove, bypassDocumentValidation on bucket collections"
    )


class Probed:
    """A probe that asks a real server, and counts the changes that it tells."""

    def __init__(self, server: MongodProcess, wanted: Any = "auto") -> None:
        self.changes = 0
        self.now_seconds = 0.0
        self._server = server
        access = AccessControl(has_account=False)
        self.probe = AccessProbe(wanted, self._run, _unasked, access, Profile(), lambda: self.now_seconds)
        self.probe.follow(Followers(changed=self._changed))

    def _changed(self) -> None:
        self.changes += 1

    async def _run(self, database: str, body: dict[str, Any]) -> Mapping[str, Any]:
        reply = dict(self._server.shared_client[database].command(body, check=False))
        if not reply["ok"]:
            raise CommandError(reply["code"], reply["errmsg"])
        return reply


async def _unasked() -> list[Mapping[str, Any]]:
    raise AssertionError("without access control, there are no privileges")


@contextmanager
def closed_buckets(server: MongodProcess) -> Iterator[None]:
    """The server refuses reads as one does that has closed the namespaces of buckets."""
    namespace = "admin.system.buckets.tsproxy"
    with failing(server, failCommands=["find"], errorCode=BUCKETS_CLOSED, namespace=namespace):
        yield


async def test_a_server_that_closes_the_namespaces_of_buckets(mongod: MongodProcess) -> None:
    probed = Probed(mongod)
    probe = probed.probe
    await probe.look()
    assert (probe.profile.access, probe.profile.why, probed.changes) == (Access.BUCKETS, Why.ABLE, 0)
    before = probe.profile
    await probe.look()
    assert probe.profile is before, "plans are kept for it"
    with closed_buckets(mongod):
        await probe.look()
        assert (probe.profile.access, probe.profile.why, probed.changes) == (Access.NATIVE, Why.CLOSED, 1)
    await probe.look()
    assert (probe.profile.access, probed.changes) == (Access.BUCKETS, 2)
    probe.buckets_closed(Namespace("d", "system.buckets.x"))
    assert (probe.profile.access, probe.profile.why, probed.changes) == (Access.NATIVE, Why.CLOSED, 3)


async def test_a_young_process_may_replace_one_whose_clients_have_cursors_on_buckets(mongod: MongodProcess) -> None:
    """A server closes cursors that are not used for ten minutes."""
    probed = Probed(mongod, "native")
    seen = []
    for now_seconds in (0, SERVER_CURSOR_TIMEOUT_SECONDS - 1, SERVER_CURSOR_TIMEOUT_SECONDS):
        probed.now_seconds = now_seconds
        await probed.probe.look()
        seen.append(probed.probe.profile.has_cursors_on_buckets)
    assert (seen, probed.changes) == ([True, True, False], 1)


async def test_cursors_on_buckets_may_be_as_old_as_the_process_that_opened_them(mongod: MongodProcess) -> None:
    probed = Probed(mongod)
    await probed.probe.look()
    probed.now_seconds = 2 * SERVER_CURSOR_TIMEOUT_SECONDS
    probed.probe.buckets_closed(Namespace("d", "system.buckets.x"))
    assert probed.probe.profile.has_cursors_on_buckets


async def test_a_setting_decides_whatever_the_server_says(mongod: MongodProcess) -> None:
    probed = Probed(mongod, "buckets")
    with closed_buckets(mongod):
        await probed.probe.look()
    probed.probe.buckets_closed(Namespace("d", "system.buckets.x"))
    assert (probed.probe.profile.access, probed.changes) == (Access.BUCKETS, 0)


async def test_the_feature_compatibility_version_is_followed(tmp_path: Path) -> None:
    """Of a server of its own: indexes of other tests would refuse the older version."""
    with own_server(tmp_path, None) as server:
        probe = Probed(server).probe
        seen = []
        for version in ("5.0", "6.0"):
            server.shared_client.admin.command("setFeatureCompatibilityVersion", version)
            await probe.look()
            seen.append(probe.feature_compatibility)
    assert seen == ["5.0", "6.0"]


async def test_without_access_control_the_account_may_insert_anywhere(mongod: MongodProcess) -> None:
    probe = Probed(mongod).probe
    await probe.look()
    assert probe.rights is None
    assert probe.may_insert(Namespace("d", "x"))
