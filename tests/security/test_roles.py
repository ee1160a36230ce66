"""Every user can do through the proxy exactly what the same user can do on the backend itself.

Each command runs twice: on a collection that the proxy serves, through the proxy, and on an equal one of the same
mongod, directly. Where mongod refuses for want of a role, the proxy's client must see the same refusal; where it
does not, the client must not be refused either.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from bson.int64 import Int64

from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.proxy import ProxyProcess

NOW = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
UNAUTHORIZED = 13

USERS: Mapping[str, list[Any]] = {
    "read": ["read"],
    "read_write": ["readWrite"],
    "administrator": ["dbAdmin"],
    "owner": ["dbOwner"],
    "one_collection": ["one_collection"],
    "insert_only": ["insert_only"],
    "remove_only": ["remove_only"],
    "update_only": ["update_only"],
    "buckets_only": ["buckets_only"],
    "reads_buckets": ["read", "buckets_only"],
    "monitor": [{"role": "clusterMonitor", "db": "admin"}],
    "superuser": [{"role": "root", "db": "admin"}],
    "nothing": [],
}
ROLES: Mapping[str, list[dict[str, Any]]] = {
    "one_collection": [{"collection": "ts", "actions": ["find", "insert", "update", "remove", "collStats"]}],
    "insert_only": [{"collection": "ts", "actions": ["insert"]}],
    "remove_only": [{"collection": "ts", "actions": ["remove"]}],
    "update_only": [{"collection": "ts", "actions": ["update"]}],
    "buckets_only": [{"system_buckets": "ts", "actions": ["find", "insert", "update", "remove"]}],
}

NEEDS_STEPS = {"q": {"m.a": {"$in": [{"x": 1}, 7]}}, "u": {"$set": {"m.b": 1}}, "multi": True}
"""An update that the proxy carries out itself (U2)."""
DOCUMENT = {"t": NOW, "m": {"a": 1}, "v": 1}
COMMANDS: Mapping[str, dict[str, Any]] = {
    "insert": {"insert": "ts", "documents": [DOCUMENT]},
    "insert many": {"insert": "ts", "documents": [DOCUMENT] * 3, "ordered": False},
    "insert unchecked": {"insert": "ts", "documents": [DOCUMENT], "bypassDocumentValidation": True},
    "insert elsewhere": {"insert": "other", "documents": [DOCUMENT]},
    "insert bad": {"insert": "ts", "documents": [{"v": 1}]},
    "insert into buckets": {"insert": "system.buckets.ts", "documents": [{"v": 1}]},
    "find": {"find": "ts", "filter": {"v": {"$gt": 0}}},
    "find elsewhere": {"find": "other"},
    "find bad": {"find": "ts", "filter": {"$nonsense": 1}},
    "find buckets": {"find": "system.buckets.ts"},
    "aggregate": {"aggregate": "ts", "pipeline": [{"$group": {"_id": "$m.a", "n": {"$sum": 1}}}], "cursor": {}},
    "lookup": {
        "aggregate": "ts",
        "pipeline": [{"$lookup": {"from": "other", "localField": "v", "foreignField": "v", "as": "x"}}],
        "cursor": {},
    },
    "lookup of measurements": {
        "aggregate": "plain",
        "pipeline": [{"$lookup": {"from": "ts", "localField": "v", "foreignField": "v", "as": "x"}}],
        "cursor": {},
    },
    "union": {"aggregate": "ts", "pipeline": [{"$unionWith": "other"}], "cursor": {}},
    "union of buckets": {"aggregate": "ts", "pipeline": [{"$unionWith": "system.buckets.ts"}], "cursor": {}},
    "graph": {
        "aggregate": "ts",
        "pipeline": [
            {
                "$graphLookup": {
                    "from": "other",
                    "startWith": "$v",
                    "connectFromField": "v",
                    "connectToField": "v",
                    "as": "x",
                }
            }
        ],
        "cursor": {},
    },
    "out": {"aggregate": "ts", "pipeline": [{"$out": "target"}], "cursor": {}},
    "merge": {"aggregate": "ts", "pipeline": [{"$merge": "target"}], "cursor": {}},
    "out to buckets": {"aggregate": "ts", "pipeline": [{"$out": "system.buckets.ts"}], "cursor": {}},
    "collStats stage": {"aggregate": "ts", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}},
    "indexStats stage": {"aggregate": "ts", "pipeline": [{"$indexStats": {}}], "cursor": {}},
    "count": {"count": "ts"},
    "distinct": {"distinct": "ts", "key": "m.a"},
    "explain": {"explain": {"find": "ts"}, "verbosity": "queryPlanner"},
    "update": {"update": "ts", "updates": [{"q": {"m.a": 9}, "u": {"$set": {"m.b": 1}}, "multi": True}]},
    "update of a value": {"update": "ts", "updates": [{"q": {"m.a": 9}, "u": {"$set": {"v": 1}}, "multi": True}]},
    "update in steps": {"update": "ts", "updates": [NEEDS_STEPS]},
    "update unchecked": {"update": "ts", "updates": [NEEDS_STEPS], "bypassDocumentValidation": True},
    "update that may insert": {"update": "ts", "updates": [NEEDS_STEPS, {**NEEDS_STEPS, "upsert": True}]},
    "update that never inserts": {"update": "ts", "updates": [{**NEEDS_STEPS, "upsert": False}]},
    "delete by a value": {"delete": "ts", "deletes": [{"q": {"v": 99}, "limit": 0}]},
    "delete unchecked": {
        "delete": "ts",
        "deletes": [{"q": {"v": 99}, "limit": 0}],
        "bypassDocumentValidation": True,
    },
    "delete by meta": {"delete": "ts", "deletes": [{"q": {"m.a": 9}, "limit": 0}]},
    "delete of buckets": {"delete": "system.buckets.ts", "deletes": [{"q": {"meta.a": 9}, "limit": 0}]},
    "collStats": {"collStats": "ts"},
    "dbStats": {"dbStats": 1},
    "dataSize": {"dataSize": "app.ts"},
    "validate": {"validate": "ts"},
    "compact": {"compact": "ts"},
    "listCollections": {"listCollections": 1, "filter": {"name": "ts"}},
    "listCollections authorized": {"listCollections": 1, "nameOnly": True, "authorizedCollections": True},
    "listIndexes": {"listIndexes": "ts"},
    "createIndexes": {"createIndexes": "ts", "indexes": [{"key": {"m.a": 1}, "name": "m_a"}]},
    "dropIndexes": {"dropIndexes": "ts", "index": "m_a"},
    "collMod": {"collMod": "ts", "expireAfterSeconds": 4_000_000},
    "create": {"create": "fresh", "timeseries": {"timeField": "t"}},
    "drop": {"drop": "fresh"},
    "drop buckets": {"drop": "system.buckets.fresh"},
    "rename": {"renameCollection": "app.ts", "to": "app.moved"},
    "getMore": {"getMore": Int64(12345), "collection": "ts"},
    "killCursors": {"killCursors": "ts", "cursors": [Int64(12345)]},
    "to capped": {"convertToCapped": "system.buckets.none", "size": 4096},
    "capped copy": {"cloneCollectionAsCapped": "system.buckets.none", "toCollection": "y", "size": 4096},
    "mapReduce": {
        "mapReduce": "ts",
        "map": "function(){emit(1,1)}",
        "reduce": "function(k,v){return 1}",
        "out": {"inline": 1},
    },
    "planCacheClear": {"planCacheClear": "ts"},
    "serverStatus": {"serverStatus": 1},
    "connectionStatus": {"connectionStatus": 1},
    "currentOp": {"currentOp": 1},
    "ping": {"ping": 1},
    "unknown": {"nonsense": "ts"},
}

AT_ADMIN = frozenset({"serverStatus", "currentOp", "rename"})

RUNS_WHERE_THE_BACKEND_REFUSES_THE_FORM = {
    "find and remove": ({"findAndModify": "ts", "query": {"v": -1}, "remove": True}, ("find", "remove")),
    "delete by value": ({"delete": "ts", "deletes": [{"q": {"v": -1}, "limit": 0}]}, ("remove",)),
    "delete of one": ({"delete": "ts", "deletes": [{"q": {"v": -1}, "limit": 1}]}, ("remove",)),
}
"""What only the proxy can do on 6.0.5, with its own account, and what a client must be allowed for it."""


def prepare(guarded: GuardedMongod, database: str) -> None:
    client = guarded.shared_client
    db = client[database]
    for name in ("ts", "other"):
        db.create_collection(name, timeseries={"timeField": "t", "metaField": "m"})
        db[name].insert_many([{"t": NOW, "m": {"a": index % 2}, "v": index} for index in range(10)])
    db.plain.insert_one({"v": 1})
    for role, privileges in ROLES.items():
        granted = []
        for privilege in privileges:
            collection = {name: value for name, value in privilege.items() if name != "actions"}
            granted.append({"resource": {"db": database, **collection}, "actions": privilege["actions"]})
        # Resources of buckets are for roles of the admin database only.
        client.admin.command("createRole", f"{role}_{database}", privileges=granted, roles=[])
    for user, roles in USERS.items():
        theirs = [
            {"role": f"{role}_{database}", "db": "admin"} if isinstance(role, str) and role in ROLES else role
            for role in roles
        ]
        guarded.create_user(database, user, theirs)


@pytest.fixture(scope="module")
def databases(guarded: GuardedMongod) -> Iterator[tuple[str, str]]:
    """Two equal databases: one for the direct client, one for the proxy's."""
    names = f"direct_{ObjectId()}", f"proxied_{ObjectId()}"
    for name in names:
        prepare(guarded, name)
    yield names
    for name in names:
        guarded.shared_client[name].command("dropAllUsersFromDatabase")
        for role in ROLES:
            guarded.shared_client.admin.command("dropRole", f"{role}_{name}")
        guarded.shared_client.drop_database(name)


def connect(uri: str) -> pymongo.MongoClient[dict[str, Any]]:
    return pymongo.MongoClient(uri, serverSelectionTimeoutMS=20_000, retryWrites=False)


def uri_for(address: str, user: str, database: str) -> str:
    login = f"{user}:{PASSWORD}@" if user else ""
    return f"mongodb://{login}{address}/{database}?directConnection=true"


def judged(outcome: Any, database: str) -> Any:
    """What must be equal: refusals word for word (but for ids), otherwise just that it was allowed."""
    if isinstance(outcome, tuple) and outcome[0] == UNAUTHORIZED:
        # Some drivers' document sequences reach the backend as arrays, which the message then shows.
        text = re.sub(r"(execute command \{ \w+: [^,]+,).*", r"\1", str(outcome[2]).replace(database, "app"))
        return (*outcome[:2], re.sub(r'UUID\("[-0-9a-f]+"\)', "UUID", text))
    return "allowed"


def adapted(command: dict[str, Any], database: str) -> dict[str, Any]:
    if "renameCollection" in command:
        return {"renameCollection": f"{database}.ts", "to": f"{database}.moved"}
    if "dataSize" in command:
        return {"dataSize": f"{database}.ts"}
    return command


@pytest.mark.parametrize("user", [*USERS, ""], ids=lambda user: user or "unauthenticated")
def test_roles_decide_as_on_the_backend(
    user: str, guarded: GuardedMongod, guarded_proxy: ProxyProcess, databases: tuple[str, str]
) -> None:
    """All commands in one test: a login costs a server milliseconds of hashing."""
    differences = {}
    direct_db, proxied_db = databases
    with (
        connect(uri_for(guarded.address, user, direct_db)) as direct,
        connect(uri_for(guarded_proxy.address, user, proxied_db)) as proxied,
    ):
        for name, command in COMMANDS.items():
            answers = []
            for client, database in ((direct, direct_db), (proxied, proxied_db)):
                at = "admin" if name in AT_ADMIN else database
                answers.append(judged(errors_of(client, at, adapted(command, database)), database))
            if answers[0] != answers[1]:
                differences[name] = answers
    assert not differences, "\n".join(f"{name}: {answers}" for name, answers in differences.items())


@pytest.mark.parametrize("user", [*USERS, ""], ids=lambda user: user or "unauthenticated")
def test_own_account_acts_only_for_who_may(
    user: str, guarded: GuardedMongod, guarded_proxy: ProxyProcess, databases: tuple[str, str]
) -> None:
    """What mongod cannot do itself the proxy does with its account, after asking whether this client may."""
    _, database = databases
    allowed_actions = {
        "read_write": {"find", "remove"},
        "owner": {"find", "remove"},
        "one_collection": {"find", "remove"},
        "remove_only": {"remove"},
        "superuser": {"find", "remove"},
    }.get(user, set())
    with connect(uri_for(guarded_proxy.address, user, database)) as client:
        for name, (command, needed) in RUNS_WHERE_THE_BACKEND_REFUSES_THE_FORM.items():
            outcome = errors_of(client, database, command)
            if allowed_actions.issuperset(needed):
                assert isinstance(outcome, dict), (name, outcome)
            else:
                assert isinstance(outcome, tuple), (name, outcome)
                assert outcome[0] == UNAUTHORIZED, (name, outcome)


def test_unauthorised_inserts_store_nothing(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, databases: tuple[str, str]
) -> None:
    _, database = databases
    before = guarded.shared_client[database].other.count_documents({})
    for user in ("read", "administrator", "insert_only", "one_collection", "nothing", ""):
        with connect(uri_for(guarded_proxy.address, user, database)) as client:
            outcome = errors_of(client, database, COMMANDS["insert elsewhere"])
            assert isinstance(outcome, tuple)
            assert outcome[0] == UNAUTHORIZED
    assert guarded.shared_client[database].other.count_documents({}) == before


def test_allowed_inserts_go_through_the_catalog(
    guarded: GuardedMongod, guarded_proxy: ProxyProcess, databases: tuple[str, str]
) -> None:
    """The check must not quietly turn every insert into a relayed one."""
    _, database = databases
    with connect(uri_for(guarded_proxy.address, "insert_only", database)) as client:
        before = guarded_proxy.metrics()
        client[database].ts.insert_many([{"t": NOW, "m": "catalog", "v": index} for index in range(5)])
        after = guarded_proxy.metrics()
    changed = {name: after[name] - before.get(name, 0) for name in after if "measurements" in name.lower()}
    assert any(value == 5 for value in changed.values()), changed
    stored = guarded.shared_client[database]["system.buckets.ts"].find_one({"meta": "catalog"})
    assert stored is not None
    assert len(stored["data"]["v"]) == 5
