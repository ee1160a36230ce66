"""What the backend's privileges allow, as seen on mongod 6.0.5 with access control, and how long that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import NOBODY, identity_of
from catalog.namespaces import Namespace
from proxy.request.authorisation import (
    REFUSAL_SECONDS,
    AccessControl,
    Authorisation,
    KnownRights,
    Rights,
    may_upsert,
    names_own_roles,
    write_actions,
)

TS = Namespace("app", "ts")
INSERT = ("insert",)


def rights(resource: dict[str, Any], *actions: str) -> Rights:
    return Rights([{"resource": resource, "actions": list(actions or INSERT)}])


@pytest.mark.parametrize(
    ("resource", "collection", "buckets"),
    [
        ({"db": "app", "collection": "ts"}, True, False),
        ({"db": "", "collection": "ts"}, True, False),
        ({"db": "app", "collection": ""}, True, False),
        ({"db": "", "collection": ""}, True, False),
        ({"anyResource": True}, True, True),
        ({"db": "app", "collection": "system.buckets.ts"}, False, True),
        ({"db": "app", "system_buckets": "ts"}, False, True),
        ({"db": "app", "system_buckets": ""}, False, True),
        ({"system_buckets": "ts"}, False, True),
        ({"system_buckets": ""}, False, True),
        ({"db": "other", "collection": ""}, False, False),
        ({"db": "app", "collection": "other"}, False, False),
        ({"system_buckets": "other"}, False, False),
        ({"cluster": True}, False, False),
        ({"anyResource": False}, False, False),
        ({}, False, False),
    ],
    ids=str,
)
def test_resources_cover_what_they_cover_on_a_server(resource: dict[str, Any], collection: bool, buckets: bool) -> None:
    assert rights(resource).allow(INSERT, TS) is collection
    assert rights(resource).allow(INSERT, TS.buckets) is buckets


@pytest.mark.parametrize(
    ("resource", "actions", "expected"),
    [
        ({"cluster": True}, ["killop", "shutdown"], True),
        ({"cluster": True}, ["killop"], False),
        ({"cluster": True}, ["anyAction"], True),
        ({"anyResource": True}, ["anyAction"], True),
        ({"anyResource": True}, ["killop", "shutdown"], True),
        ({"cluster": False}, ["killop", "shutdown"], False),
        ({"db": "admin", "collection": ""}, ["killop", "shutdown", "anyAction"], False),
    ],
    ids=str,
)
def test_privileges_on_the_cluster(resource: dict[str, Any], actions: list[str], expected: bool) -> None:
    assert rights(resource, *actions).allow_on_cluster(("killop", "shutdown")) is expected


def test_all_actions_are_needed_and_add_up() -> None:
    told = Rights(
        [
            {"resource": {"db": "app", "collection": ""}, "actions": ["find"]},
            {"resource": {"db": "app", "collection": "ts"}, "actions": ["remove"]},
        ]
    )
    assert told.allow(("find", "remove"), TS)
    assert not told.allow(("find", "insert"), TS)
    assert not told.allow(("find", "remove"), Namespace("app", "other"))


def test_other_system_collections_are_not_covered_by_a_whole_database() -> None:
    assert not rights({"db": "app", "collection": ""}).allow(INSERT, Namespace("app", "system.profile"))


class _Upstream:
    def __init__(self, reply: dict[str, Any]) -> None:
        self.reply = reply
        self.asked = 0

    async def run(self, database: str, body: Any, extra: bytes = b"") -> bytes:
        self.asked += 1
        return bson.encode(self.reply)


class _Session:
    def __init__(self, upstream: _Upstream) -> None:
        self.identity = identity_of([("reader", "app")])
        self.rights: KnownRights | None = None
        self.upstream = upstream


class _Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def told(*privileges: dict[str, Any]) -> dict[str, Any]:
    return {"authInfo": {"authenticatedUsers": [], "authenticatedUserPrivileges": list(privileges)}, "ok": 1.0}


MAY_INSERT = {"resource": {"db": "app", "collection": "ts"}, "actions": ["insert"]}


def gate(clock: _Clock, *, has_account: bool = True) -> Authorisation:
    return Authorisation(AccessControl(has_account=has_account), clock, 30)


async def test_answer_counts_until_it_is_too_old() -> None:
    clock, upstream = _Clock(), _Upstream(told(MAY_INSERT))
    authorisation, session = gate(clock), _Session(upstream)
    assert authorisation.known(session, INSERT, TS) is None
    assert await authorisation.allows(session, INSERT, TS)
    clock.seconds += 29.9
    assert authorisation.known(session, INSERT, TS) is True
    upstream.reply = told()
    clock.seconds += 0.1
    assert authorisation.known(session, INSERT, TS) is None
    assert not await authorisation.allows(session, INSERT, TS)
    assert upstream.asked == 2


async def test_a_refused_write_is_asked_for_again_after_a_second() -> None:
    clock, upstream = _Clock(), _Upstream(told())
    authorisation, session = gate(clock), _Session(upstream)
    for _ in range(5):
        assert not await authorisation.allows(session, INSERT, TS)
    assert upstream.asked == 1
    upstream.reply = told(MAY_INSERT)
    clock.seconds += REFUSAL_SECONDS
    assert authorisation.known(session, INSERT, TS) is False
    assert await authorisation.allows(session, INSERT, TS)
    clock.seconds += REFUSAL_SECONDS
    assert await authorisation.allows(session, INSERT, TS)
    assert upstream.asked == 2


async def test_who_may_not_read_buckets_is_not_asked_about_all_the_time() -> None:
    clock, upstream = _Clock(), _Upstream(told())
    authorisation, session = gate(clock), _Session(upstream)
    for _ in range(5):
        assert not await authorisation.reads_buckets(session, TS)
        clock.seconds += 5
    assert upstream.asked == 1


async def test_answer_counts_only_for_whom_it_was_given() -> None:
    authorisation, session = gate(_Clock()), _Session(_Upstream(told(MAY_INSERT)))
    await authorisation.allows(session, INSERT, TS)
    session.identity = NOBODY
    assert authorisation.known(session, INSERT, TS) is None


async def test_no_answer_is_no_permission() -> None:
    authorisation, session = gate(_Clock()), _Session(_Upstream({"ok": 0.0, "errmsg": "no", "code": 11600}))
    with pytest.raises(BackendUnavailable):
        await authorisation.allows(session, INSERT, TS)
    assert session.rights is None


async def test_buckets_are_read_only_by_who_may_read_both() -> None:
    find = [{"resource": {"db": "app", "collection": "ts"}, "actions": ["find"]}]
    buckets = [{"resource": {"system_buckets": ""}, "actions": ["find"]}]
    for privileges, expected in ((find, False), (buckets, False), (find + buckets, True)):
        session = _Session(_Upstream(told(*privileges)))
        assert await gate(_Clock()).reads_buckets(session, TS) is expected


def test_without_an_account_there_is_nothing_to_guard() -> None:
    session = _Session(_Upstream(told()))
    assert gate(_Clock(), has_account=False).known(session, INSERT, TS) is True


def test_access_control_is_on_until_the_backend_shows_otherwise() -> None:
    access = AccessControl(has_account=True)
    assert access.enforced
    access.record_probe({"ok": 1.0})
    assert not access.enforced
    for doubtful in ({"ok": 0.0, "code": 13}, {"ok": 0.0, "code": 59}, {}):
        access.record_probe({"ok": 1.0})
        access.record_probe(doubtful)
        assert access.enforced


def test_access_control_without_an_account_is_an_error_at_the_start() -> None:
    with pytest.raises(CommandError, match="requires authentication"):
        AccessControl(has_account=False).record_probe({"ok": 0.0, "code": 13})


class _Command:
    def __init__(self, name: str, sequence: Sequence[Mapping[str, Any]] = (), **fields: Any) -> None:
        from proxy.wire.framing import top_level

        self.body = bson.encode({name: "ts", **fields})
        self.fields = top_level(self.body)
        self.sequences = [("updates", [bson.encode(each) for each in sequence])]


@pytest.mark.parametrize(("name", "actions"), [("insert", INSERT), ("delete", ("remove",)), ("update", ("update",))])
def test_bypassing_the_validator_needs_its_own_action(name: str, actions: tuple[str, ...]) -> None:
    assert write_actions(_Command(name), actions) == actions
    assert write_actions(_Command(name, bypassDocumentValidation=False), actions) == actions
    for value in (True, 1, None, "no"):
        command = _Command(name, bypassDocumentValidation=value)
        assert write_actions(command, actions) == (*actions, "bypassDocumentValidation")


@pytest.mark.parametrize(("value", "may"), [(True, True), (1, True), (0, True), (None, True), (False, False)])
def test_an_update_that_may_insert_is_found(value: object, may: bool) -> None:
    statements = [{"q": {}, "u": {}, "multi": True}, {"q": {}, "u": {}, "upsert": value}]
    assert may_upsert(_Command("update", updates=statements)) is may
    assert may_upsert(_Command("update", statements)) is may


def test_an_update_without_the_field_inserts_nothing() -> None:
    assert not may_upsert(_Command("update", [{"q": {"m": "upsert"}, "u": {}}], updates=[{"q": {}, "u": {}}]))


def test_commands_that_depend_on_the_users_roles_are_found() -> None:
    statement = {"q": {"$expr": {"$in": ["auditor", "$$USER_ROLES._id"]}}, "limit": 0}
    assert names_own_roles(_Command("delete", deletes=[statement]))
    assert names_own_roles(_Command("delete", [statement]))
    assert not names_own_roles(_Command("delete", [{"q": {"USER_ROLES": "$USER_ROLES"}, "limit": 0}]))
