"""A retryable insert is executed once also if the access to the collection changes before it is sent again (W102).

What was stored in buckets is not in the server's record of retryable writes, and what the server has recorded is not in
that of the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest

from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

START = datetime(2024, 5, 1, tzinfo=UTC)
TIMESERIES = {"timeField": "t", "metaField": "m"}
REGULAR_CHECK_SECONDS = 60.0
"""More than the interval in which the proxy looks again whether the server allows access to buckets."""
Row = Mapping[str, Any]


def rows(count: int, text: str = "") -> list[Row]:
    return [
        {"_id": bson.ObjectId(), "t": START + timedelta(seconds=number), "m": number % 3, "v": number / 7, "s": text}
        for number in range(count)
    ]


def sent(
    client: pymongo.MongoClient[Any],
    name: str,
    session: Any,
    documents: Sequence[Row],
    *,
    ordered: bool,
    number: int = 1,
) -> Row:
    """The reply to a command with this number in its session, by default the first one, each time."""
    command = {"insert": "x", "documents": documents, "ordered": ordered, "txnNumber": bson.Int64(number)}
    reply: Row = client[name].command({**command}, session=session, check=False)
    return {field: reply[field] for field in ("n", "ok", "writeErrors", "code") if field in reply}


def stored(mongod: MongodProcess, name: str) -> list[Row]:
    found = [{**row, "t": row["t"].replace(tzinfo=UTC)} for row in mongod.shared_client[name].x.find()]
    return sorted(found, key=lambda row: row["_id"])


KINDS: Mapping[str, tuple[Callable[[], list[Row]], bool]] = {
    "one": (lambda: rows(1), True),
    "ordered": (lambda: rows(5), True),
    "unordered": (lambda: rows(5), False),
    "large ordered": (lambda: rows(80, "x" * 1000), True),
    "large unordered": (lambda: rows(80, "x" * 1000), False),
}
ACCESS = {
    "buckets": ["--timeseries-access", "buckets"],
    "native": ["--timeseries-access", "native"],
    "relayed": ["--timeseries-access", "native", "--write-strategy", "native"],
}


@pytest.mark.parametrize("after", ["native", "relayed", "buckets"])
@pytest.mark.parametrize("before", ["buckets", "native"])
def test_w102_a_restart_with_another_access(
    replica_set: MongodProcess, tmp_path: Path, db_name: str, before: str, after: str
) -> None:
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=ACCESS[before]).start()
    names = {kind: f"{db_name}_{number}" for number, kind in enumerate(KINDS)}
    documents = {kind: make() for kind, (make, _) in KINDS.items()}
    try:
        with proxy.client(retryWrites=False) as client:
            sessions = {kind: client.start_session() for kind in KINDS}
            for kind, (_, ordered) in KINDS.items():
                client[names[kind]].create_collection("x", timeseries=TIMESERIES)
                reply = sent(client, names[kind], sessions[kind], documents[kind], ordered=ordered)
                assert reply == {"n": len(documents[kind]), "ok": 1.0}
            proxy.stop()
            proxy.flags = ACCESS[after]
            proxy.start()
            for kind, (_, ordered) in KINDS.items():
                for _ in range(2):
                    reply = sent(client, names[kind], sessions[kind], documents[kind], ordered=ordered)
                    assert (kind, reply) == (kind, {"n": len(documents[kind]), "ok": 1.0})
                    assert stored(replica_set, names[kind]) == documents[kind], kind
    finally:
        proxy.stop()
        for name in names.values():
            replica_set.shared_client.drop_database(name)


def test_w102_what_was_stored_of_an_ordered_insert_is_not_stored_again(
    replica_set: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """As by a proxy that was killed in the middle of it; it ends with the first document that is no measurement."""
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=ACCESS["buckets"]).start()
    documents = rows(6)
    bad = {"_id": bson.ObjectId(), "m": 1}
    try:
        with proxy.client(retryWrites=False) as client, client.start_session() as session:
            client[db_name].create_collection("x", timeseries=TIMESERIES)
            assert sent(client, db_name, session, documents[:2], ordered=True)["n"] == 2
            proxy.stop()
            proxy.flags = ACCESS["native"]
            proxy.start()
            reply = sent(client, db_name, session, [*documents[:4], bad, *documents[4:]], ordered=True)
            assert (reply["n"], [each["index"] for each in reply["writeErrors"]]) == (4, [4])
            assert stored(replica_set, db_name) == documents[:4]
    finally:
        proxy.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_w102_access_that_changes_while_the_proxy_runs(
    replica_set: MongodProcess, tmp_path: Path, db_name: str, kind: str
) -> None:
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=["--timeseries-access", "auto"]).start()
    make, ordered = KINDS[kind]
    documents = make()
    try:
        with proxy.client(retryWrites=False) as client, client.start_session() as session:
            client[db_name].create_collection("x", timeseries=TIMESERIES)
            client[db_name].create_collection("y", timeseries=TIMESERIES)
            assert sent(client, db_name, session, documents, ordered=ordered)["n"] == len(documents)
            namespace = f"{db_name}.system.buckets.y"
            with failing(replica_set, failCommands=["insert", "update", "find"], errorCode=491, namespace=namespace):
                client[db_name].command({"insert": "y", "documents": rows(1)}, check=False)
                proxy.wait_until(lambda: client.admin.command("buildInfo")["tsproxy"]["access"] == "native")
                for _ in range(2):
                    reply = sent(client, db_name, session, documents, ordered=ordered)
                    assert reply == {"n": len(documents), "ok": 1.0}
                    assert stored(replica_set, db_name) == documents
    finally:
        proxy.stop()


def test_w102_access_to_buckets_that_comes_back_while_the_proxy_runs(
    replica_set: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """What the server has executed natively it recognises, also a small insert, and one with times before 1970."""
    proxy = ProxyProcess(tmp_path, replica_set.uri, flags=["--timeseries-access", "auto"]).start()
    names = {kind: f"{db_name}_{number}" for number, kind in enumerate((*KINDS, "early"))}
    batches = {kind: (make(), ordered) for kind, (make, ordered) in KINDS.items()}
    batches["early"] = [{**row, "t": row["t"].replace(year=1969)} for row in rows(5)], True
    try:
        with proxy.client(retryWrites=False) as client:
            for name in "xy":
                client[db_name].create_collection(name, timeseries=TIMESERIES)
            sessions = {kind: client.start_session() for kind in batches}

            def access() -> str:
                return str(client.admin.command("buildInfo")["tsproxy"]["access"])

            def send(kind: str) -> None:
                documents, ordered = batches[kind]
                reply = sent(client, names[kind], sessions[kind], documents, ordered=ordered, number=2)
                assert (kind, reply) == (kind, {"n": len(documents), "ok": 1.0})
                assert stored(replica_set, names[kind]) == documents, kind

            namespace = f"{db_name}.system.buckets.y"
            with failing(replica_set, failCommands=["insert", "update", "find"], errorCode=491, namespace=namespace):
                client[db_name].command({"insert": "y", "documents": rows(1)}, check=False)
                proxy.wait_until(lambda: access() == "native")
                for kind in batches:
                    client[names[kind]].create_collection("x", timeseries=TIMESERIES)
                    # Only the first statements of a session are looked for in the collection.
                    assert sent(client, db_name, sessions[kind], rows(1), ordered=True)["n"] == 1
                    send(kind)
            proxy.wait_until(lambda: access() == "buckets", REGULAR_CHECK_SECONDS)
            for kind in (*batches, *batches):
                send(kind)
    finally:
        proxy.stop()
        for name in names.values():
            replica_set.shared_client.drop_database(name)
