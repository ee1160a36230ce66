"""What is found out about a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.bson.codec import encode
from catalog.identity import User
from proxy.process.doctor.asking import account_from, examined, in_place_reason
from proxy.process.doctor.found import Account, Collections, Member, Unknown
from proxy.process.growth_policy import CANNOT_JOIN, MAY_NOT_ASK, MAY_NOT_JOIN
from proxy.settings.config import ConfigurationError, load_settings
from proxy.settings.table import Settings
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port


async def test_a_server_without_access_control(replica_set: MongodProcess) -> None:
    found = await examined(Settings(backend=replica_set.uri))
    assert found.server is not None
    assert found.account == Account(None, False)
    assert found.in_place_reason == ""
    assert isinstance(found.proxies, int)
    assert isinstance(found.collections, Collections)
    assert isinstance(found.build, dict)
    assert found.feature_compatibility == ".".join(found.build["version"].split(".")[:2])


async def test_a_server_that_does_not_answer_is_asked_nothing_more() -> None:
    found = await examined(Settings(backend=f"mongodb://{LOOPBACK}:{free_port()}/"))
    assert [each.reason for each in found.members] == ["Connection refused"]
    assert (found.build, found.account, found.collections) == (None, None, None)


async def test_srv_records_that_are_not_found() -> None:
    settings = Settings(backend="mongodb+srv://u:secret@nowhere.example.invalid/", connect_timeout_ms=500)
    found = await examined(settings)
    assert "SRV" in found.members[0].reason
    assert "secret" not in repr(replace(found, settings=Settings()))


async def test_settings_without_a_backend() -> None:
    with pytest.raises(ConfigurationError, match="--backend"):
        await examined(Settings())


def test_account_of_a_reply() -> None:
    privilege = {"resource": {"cluster": True}, "actions": ["inprog"]}
    told = {
        "authenticatedUsers": [{"user": "u", "db": "app"}],
        "authenticatedUserRoles": [{"role": "tsproxy", "db": "admin"}],
        "authenticatedUserPrivileges": [privilege],
    }
    account = account_from(encode({"authInfo": told}), is_checked=True)
    assert account == Account(User("u", "app"), True, (("tsproxy", "admin"),), (privilege,))
    assert account_from(encode({"authInfo": {}}), is_checked=False) == Account(None, False)


ALONE, MEMBER = Member("db:1", {}), Member("db:1", {"setName": "rs0"})
MAY = tuple({"resource": {"cluster": True}, "actions": [each]} for each in ("inprog", "applyOps"))


@pytest.mark.parametrize(
    ("growth", "server", "version", "account", "reason"),
    [
        ("in_place", ALONE, [6, 0, 5], Account(User("u", "a"), True, (), MAY), "write_strategy is in_place"),
        ("auto", ALONE, [6, 0, 5], Account(User("u", "a"), True, (), MAY), ""),
        ("auto", ALONE, [6, 0, 5], Account(User("u", "a"), False), ""),
        ("auto", ALONE, [6, 0, 5], Account(User("u", "a"), True), MAY_NOT_JOIN),
        ("auto", MEMBER, [6, 0, 5], Account(User("u", "a"), True), MAY_NOT_ASK),
        ("in_parts", MEMBER, [6, 0, 5], Account(User("u", "a"), True), ""),
        ("auto", ALONE, [7, 0, 1], Account(User("u", "a"), False), CANNOT_JOIN),
    ],
)
async def test_why_buckets_would_grow_in_place(
    growth: str, server: Member, version: list[int], account: Account, reason: str
) -> None:
    settings = load_settings({"write_strategy": growth}, {}).settings
    assert await in_place_reason(settings, server, {"versionArray": version}, account) == reason


async def test_growth_without_a_version_is_not_known() -> None:
    account = Account(None, False)
    assert isinstance(await in_place_reason(Settings(), ALONE, {"versionArray": []}, account), Unknown)
    assert await in_place_reason(Settings(), ALONE, Unknown("refused"), account) == Unknown("refused")
