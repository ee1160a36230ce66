"""Steps of the proxy's own account: the least role is enough for all, and what goes wrong in one tells nothing.

The client may do everything, so what is refused for want of a privilege was refused to the proxy.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId, json_util
from bson.binary import Binary
from bson.int64 import Int64

from proxy.request.router import TABLE
from tests.support.access import ACCOUNT_PASSWORD, GuardedMongod, least_role
from tests.support.logged_in import LoggedIn, logged_in
from tests.support.proxy import ProxyProcess, started

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
UNAUTHORIZED = 13
ACCOUNT = "account_of_the_proxy"
SECRET = "what only readers may see"
ROW = {"t": START, "m": {"a": 1}, "v": 1, "p": SECRET}
BY_VALUE = {"v": {"$gte": 0}}

LOGINS = {"authenticate", "logout", "saslContinue", "saslStart"}
"""They change who the client is; ``test_authentication`` has them."""

COMMANDS: Mapping[str, list[dict[str, Any]]] = {
    "aggregate": [
        {"pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}], "cursor": {}},
        {"pipeline": [{"$sort": {"t": -1}}, {"$group": {"_id": "$m.a", "v": {"$first": "$v"}}}], "cursor": {}},
        {"pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}},
        {"pipeline": [{"$lookup": {"from": "ts", "localField": "v", "foreignField": "v", "as": "x"}}], "cursor": {}},
    ],
    "applyOps": [{"applyOps": []}],
    "bulkWrite": [{"bulkWrite": 1, "ops": [], "nsInfo": []}],
    "cloneCollectionAsCapped": [{"toCollection": "capped", "size": 4096}],
    "buildInfo": [{"buildInfo": 1}],
    "buildinfo": [{"buildinfo": 1}],
    "collMod": [{"expireAfterSeconds": 4_000_000_000}],
    "collStats": [{}],
    "collstats": [{}],
    "compact": [{"force": True}],
    "convertToCapped": [{"size": 4096}],
    "count": [{}, {"query": BY_VALUE}],
    "create": [{"create": "fresh", "timeseries": {"timeField": "t"}}],
    "createIndexes": [{"indexes": [{"key": {"m.a": 1}, "name": "m_a"}]}],
    "dataSize": [{"dataSize": "DATABASE.ts"}],
    "datasize": [{"datasize": "DATABASE.ts"}],
    "dbStats": [{"dbStats": 1}],
    "dbstats": [{"dbstats": 1}],
    "delete": [
        {"deletes": [{"q": BY_VALUE, "limit": 1}]},
        {"deletes": [{"q": {"v": 5}, "limit": 0}]},
        {"deletes": [{"q": {"m.a": 1, "v": 6}, "limit": 0}, {"q": {"v": 7}, "limit": 1}], "ordered": False},
        {"deletes": [{"q": {"m.a": 99}, "limit": 0}]},
    ],
    "deleteIndexes": [{"index": "m_a"}],
    "distinct": [{"key": "m.a"}, {"key": "v"}],
    "drop": [{"drop": "fresh"}],
    "dropDatabase": [{"dropDatabase": 1}],
    "dropIndexes": [{"index": "m_a"}],
    "explain": [{"explain": {"find": "ts", "filter": BY_VALUE}, "verbosity": "queryPlanner"}],
    "find": [{"filter": BY_VALUE}, {"filter": {"m.a": 1}, "sort": {"t": -1}, "limit": 1}],
    "findAndModify": [
        {"query": BY_VALUE, "remove": True},
        {"query": BY_VALUE, "remove": True, "sort": {"v": -1}, "fields": {"v": 1}},
        {"query": {"v": -5}, "remove": True},
    ],
    "findandmodify": [{"query": BY_VALUE, "remove": True, "sort": {"v": 1}}],
    "geoSearch": [{"near": [1, 1], "search": {"v": 1}, "maxDistance": 1}],
    "getMore": [{"getMore": Int64(1), "collection": "ts"}],
    "hello": [{"hello": 1}],
    "insert": [{"documents": [ROW]}, {"documents": [{**ROW, "v": n} for n in range(20)], "ordered": False}],
    "isMaster": [{"isMaster": 1}],
    "ismaster": [{"ismaster": 1}],
    "killCursors": [{"cursors": [Int64(1)]}],
    "listCollections": [{"listCollections": 1}],
    "listDatabases": [{"listDatabases": 1}],
    "listIndexes": [{}],
    "mapReduce": [{"map": "function(){emit(1,1)}", "reduce": "function(k,v){return 1}", "out": {"inline": 1}}],
    "mapreduce": [{"map": "function(){emit(1,1)}", "reduce": "function(k,v){return 1}", "out": {"inline": 1}}],
    "ping": [{"ping": 1}],
    "planCacheClear": [{}],
    "planCacheListFilters": [{}],
    "planCacheSetFilter": [{"query": {"a": 1}, "indexes": [{"a": 1}]}],
    "reIndex": [{}],
    "renameCollection": [{"renameCollection": "DATABASE.ts", "to": "DATABASE.moved"}],
    "serverStatus": [{"serverStatus": 1}],
    "tsproxy": [{"tsproxy": "status"}, {"tsproxy": "clients"}],
    "update": [
        {"updates": [{"q": {"m.a": 1}, "u": {"$set": {"m.b": 1}}, "multi": True}]},
        {"updates": [{"q": {"m": {"$in": [{"a": 1}]}}, "u": {"$set": {"m.b": 2}}, "multi": True}]},
        {"updates": [{"q": {"m": {"m": 1}}, "u": {"$set": {"m.b": 2}}, "multi": True}]},
    ],
    "validate": [{}],
}
"""Every command of the router's table, in the forms that the proxy treats in different ways."""

AT_ADMIN = frozenset({"applyOps", "listDatabases", "renameCollection", "serverStatus", "tsproxy"})
NOT_EVEN_ROOT = frozenset({"applyOps"})
"""Relayed, and refused to the client itself."""

RETRYABLE = ("delete", "findAndModify", "findandmodify", "insert", "update")
DESTROYS = ("drop", "dropDatabase", "renameCollection")


def test_every_command_of_the_table_is_here() -> None:
    """A new command is run under the least role, too."""
    assert COMMANDS.keys() | LOGINS == TABLE.keys()


@pytest.fixture(scope="module")
def proxied(guarded_set: GuardedMongod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy whose account has the least role and a name of its own, and the roles of the account to play with."""
    admin = guarded_set.shared_client.admin
    admin.command("createUser", ACCOUNT, pwd=ACCOUNT_PASSWORD, roles=[least_role()["createRole"]])
    uri = guarded_set.uri_of(ACCOUNT, ACCOUNT_PASSWORD, "admin")
    with started(ProxyProcess(tmp_path_factory.mktemp("own_steps"), uri)) as process:
        yield process
        admin.command("dropUser", ACCOUNT)


@pytest.fixture
async def database(guarded_set: GuardedMongod) -> AsyncIterator[str]:
    name = f"steps_{ObjectId()}"
    native = guarded_set.shared_client[name]
    native.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    native.ts.insert_many([{**ROW, "v": value} for value in range(60)])
    guarded_set.create_user(name, "boss", [{"role": "root", "db": "admin"}])
    yield name
    native.command("dropAllUsersFromDatabase")
    guarded_set.shared_client.drop_database(name)


def whole(name: str, form: Mapping[str, Any], database: str) -> dict[str, Any]:
    body = dict(form) if name in form else {name: "ts", **form}
    return {
        key: value.replace("DATABASE", database) if isinstance(value, str) else value for key, value in body.items()
    }


async def run(client: LoggedIn, name: str, form: Mapping[str, Any], database: str) -> list[dict[str, Any]]:
    """The replies to one command: where it may be retried, also as a retryable write and its retry."""
    body = whole(name, form, database)
    replies = [await client.run(body, "admin" if name in AT_ADMIN else "")]
    if name in RETRYABLE:
        session = {"lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(1)}
        replies += [await client.run({**body, **session}) for _ in range(2)]
    return replies


async def test_the_least_role_is_enough_for_every_command(
    guarded_set: GuardedMongod, proxied: ProxyProcess, database: str
) -> None:
    """First tries and retries; and a retry says what the first try said."""
    order = [name for name in COMMANDS if name not in DESTROYS] + list(DESTROYS)
    async with logged_in(proxied.port, "boss", database, database) as boss:
        for name in order:
            for form in COMMANDS[name]:
                replies = await run(boss, name, form, database)
                for reply in [] if name in NOT_EVEN_ROOT else replies:
                    assert reply.get("code") != UNAUTHORIZED, (name, form, reply)
                    assert all(each["code"] != UNAUTHORIZED for each in reply.get("writeErrors", ())), (name, reply)
                if len(replies) == 3 and replies[1]["ok"] == 1:
                    told = [(each.get("n"), each.get("value"), each["ok"]) for each in replies[1:]]
                    assert told[0] == told[1], (name, form)


WRITES = ("insert", "delete", "findAndModify", "findandmodify", "update")


def tells_nothing(reply: Mapping[str, Any]) -> bool:
    """Whether an error says nothing of data, buckets or the account; an answer may hold what was asked for."""
    said = {name: value for name, value in reply.items() if name not in ("value", "cursor")}
    text = json.dumps(said, default=json_util.default)
    return not any(each in text for each in (SECRET, "system.buckets", ACCOUNT, "lsid", "$literal"))


async def test_an_account_with_too_little_tells_nothing(
    guarded_set: GuardedMongod, proxied: ProxyProcess, database: str
) -> None:
    """The server's own words hold the whole command that was refused, with everybody's measurements."""
    role = least_role()
    admin = guarded_set.shared_client.admin
    refused = 0
    try:
        for missing in ("find", "insert", "update", "remove"):
            privileges = [
                {**each, "actions": [action for action in each["actions"] if action != missing]}
                for each in role["privileges"]
            ]
            admin.command("updateRole", role["createRole"], privileges=privileges)
            async with logged_in(proxied.port, "boss", database, database) as boss:
                for name in WRITES:
                    for form in COMMANDS[name]:
                        for reply in await run(boss, name, form, database):
                            assert tells_nothing(reply), (missing, name, reply)
                            refused += reply.get("code") == UNAUTHORIZED
    finally:
        admin.command("updateRole", role["createRole"], privileges=role["privileges"])
    assert refused > 10


@pytest.mark.parametrize("code", [8000, 121, 11000])
async def test_a_step_that_fails_tells_nothing(
    code: int, guarded_set: GuardedMongod, proxied: ProxyProcess, database: str
) -> None:
    """Each step of each command fails, the ones after it too; an insert's once, or its outcome would be pursued."""
    admin = guarded_set.shared_client.admin
    failed = 0
    injected = {
        "failCommands": ["aggregate", "delete", "find", "findAndModify", "getMore", "insert", "update"],
        "namespace": f"{database}.system.buckets.ts",
        "errorCode": code,
    }
    async with logged_in(proxied.port, "boss", database, database) as boss:
        for name in WRITES:
            modes: list[dict[str, int]] = [{"times": 1}] if name == "insert" else [{"skip": skip} for skip in range(7)]
            for form in COMMANDS[name][:2]:
                for mode in modes:
                    admin.command("configureFailPoint", "failCommand", mode=mode, data=injected)
                    try:
                        reply = await boss.run(whole(name, form, database))
                    finally:
                        admin.command("configureFailPoint", "failCommand", mode="off")
                    assert tells_nothing(reply), (name, mode, reply)
                    failed += reply["ok"] != 1 or "writeErrors" in reply
    assert failed > 10
