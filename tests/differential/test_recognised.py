"""Commands that look like one that is recognised by its bytes: the same answer and effect as if nothing was known.

A message with a checksum is never recognised. So each insert goes to one collection as it is, and with a checksum to
another one with a name as long; reads are sent in both forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import bson
import pytest
from bson import Binary, DatetimeMS, Int64

from catalog.bson.raw import fields_of
from proxy.wire import op_msg
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, body, document_of, op_msg_bytes, sequence, with_checksum

KNOWN = "known_series"
PARSED = "parsed_serie"
VOLATILE = frozenset({"operationTime", "$clusterTime", "opTime", "electionId"})
SESSION = b"\x03lsid\0\x1e\0\0\0\x05id\0\x10\0\0\0\x04"


def lsid(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([7] * 15 + [number]), 4)}


def row(number: int) -> dict[str, Any]:
    return {"_id": number, "t": DatetimeMS(1_600_000_000_000 + number), "m": 1}


def fields(gossip: dict[str, Any], number: int, session: int = 1, **more: Any) -> dict[str, Any]:
    return {"ordered": True, "lsid": lsid(session), "txnNumber": Int64(number), "$clusterTime": gossip, **more}


@dataclass(frozen=True)
class Case:
    """``elements`` follow the name of the collection; ``database`` stands where ``None`` does."""

    elements: list[dict[str, Any] | bytes | None]
    rows: tuple[int, ...] = (1,)
    sections: tuple[bytes, ...] = ()


def twice(name: str, first: Any, second: Any) -> list[dict[str, Any] | bytes | None]:
    return [{name: first}, {name: second}]


def cases(gossip: dict[str, Any]) -> dict[str, Case]:
    usual = fields(gossip, 5)
    text = SESSION.decode("latin-1") + "0123456789abcdef\x12txnNumber\0 01234567"
    without = {name: value for name, value in usual.items() if name not in ("lsid", "txnNumber")}
    numbered = {name: value for name, value in usual.items() if name != "lsid"}
    return {
        "another number": Case([fields(gossip, 6), None]),
        "the same number": Case([fields(gossip, 4), None]),
        "a number of long ago": Case([fields(gossip, -1), None]),
        "another session": Case([fields(gossip, 4, session=2), None]),
        "text that looks like a session": Case([{**usual, "comment": text}, None]),
        "text first": Case([{"comment": text}, usual, None]),
        "document with a session": Case([{**usual, "comment": {"lsid": lsid(9), "txnNumber": Int64(9)}}, None]),
        "document with a session first": Case([{"comment": {"lsid": lsid(9)}}, usual, None]),
        "document with a database": Case([{**usual, "comment": {"$db": "x"}}, None]),
        "two sessions": Case([*twice("lsid", lsid(1), lsid(2)), numbered, None]),
        "two numbers": Case([*twice("txnNumber", Int64(5), Int64(6)), {**without, "lsid": lsid(1)}, None]),
        "two databases": Case([usual, None, {"$db": "x"}]),
        "no database": Case([usual]),
        "database first": Case([None, usual]),
        "no session": Case([without, None]),
        "number without a session": Case([numbered, None]),
        "session of another form": Case([{**usual, "lsid": {"id": Binary(bytes(16), 3)}}, None]),
        "session with more in it": Case([{**usual, "lsid": {**lsid(1), "more": 1}}, None]),
        "short session": Case([{**usual, "lsid": {"id": Binary(bytes(15), 4)}}, None]),
        "small number": Case([{**usual, "txnNumber": 5}, None]),
        "number of text": Case([{**usual, "txnNumber": "1234567"}, None]),
        "order of the fields": Case([dict(reversed(usual.items())), None]),
        "time of another form": Case([{**usual, "$clusterTime": {"clusterTime": gossip["clusterTime"]}}, None]),
        "statement ids": Case([{**usual, "stmtIds": [4]}, None]),
        "in a transaction": Case([{**usual, "autocommit": False, "startTransaction": True}, None]),
        "unknown field": Case([{**usual, "nonsense": 1}, None]),
        "unordered": Case([{**usual, "ordered": False}, None], rows=(1, 1, 2)),
        "many": Case([usual, None], rows=tuple(range(1, 20))),
        "none": Case([usual, None], rows=()),
        "documents in the body": Case([{**usual, "documents": [row(1)]}, None], sections=(b"",)),
        "documents twice": Case([usual, None], sections=(sequence("documents", row(1)),) * 2),
        "another sequence": Case([usual, None], sections=(sequence("document", row(1)),)),
        "bad document": Case([usual, None], sections=(sequence("documents", b"\x08\0\0\0\x01a\0\0"),)),
        "sequence too long": Case([usual, None], sections=(sequence("documents", row(1), size=900),)),
        "sequence too short": Case([usual, None], sections=(sequence("documents", row(1), size=30),)),
        "two bodies": Case([usual, None], sections=(body({}), sequence("documents", row(1)))),
    }


def insert(collection: str, database: str, case: Case) -> bytes:
    elements = [bson.encode({"insert": collection})[4:-1]]
    for each in case.elements:
        document = {"$db": database} if each is None else each
        elements.append(document if isinstance(document, bytes) else bson.encode(document)[4:-1])
    whole = b"".join(elements)
    sections = case.sections or (sequence("documents", *map(row, case.rows)),)
    return op_msg_bytes(b"\0" + (len(whole) + 5).to_bytes(4, "little") + whole + b"\0", *sections)


def told(client: RawClient, raw: bytes) -> dict[str, Any]:
    """The reply, without what is different each time; nothing if the connection was closed."""
    client.send(raw)
    message = client.receive()
    if message is None:
        return {}
    reply = {name: value for name, value in document_of(message).items() if name not in VOLATILE}
    if "cursor" in reply:
        reply["cursor"].pop("id")
    return reply


def without_names(reply: dict[str, Any]) -> str:
    return repr(reply).replace(KNOWN, "series").replace(PARSED, "series")


@pytest.fixture(scope="module")
def database(replica_set: MongodProcess) -> Iterator[str]:
    name = "recognised"
    for collection in (KNOWN, PARSED):
        replica_set.shared_client[name].create_collection(collection, timeseries={"timeField": "t", "metaField": "m"})
    yield name
    replica_set.shared_client.drop_database(name)


def clear(server: MongodProcess, database: str, collection: str) -> None:
    """Past the proxy, and without a delete of measurements, which 5.0 does not have."""
    server.shared_client[database][f"system.buckets.{collection}"].delete_many({})


NAMES = list(cases({"clusterTime": 1}))


@pytest.mark.parametrize("name", NAMES)
def test_insert_that_begins_as_the_usual_one(
    replica_set: MongodProcess, proxy_rs: ProxyProcess, database: str, name: str
) -> None:
    """W102."""
    gossip = replica_set.shared_client.admin.command("ping")["$clusterTime"]
    answers: list[Any] = []
    stored: list[Any] = []
    for collection in (KNOWN, PARSED):
        clear(replica_set, database, collection)
        with RawClient(proxy_rs.port) as client:
            usual = [Case([fields(gossip, number), None], rows=(100 + number,)) for number in (2, 3, 4)]
            # The session is another one for each test, so that none has the numbers of an earlier one.
            unique = NAMES.index(name).to_bytes(1, "little") + collection.encode()[:1]
            for case in (*usual, cases(gossip)[name], *usual[-1:]):
                raw = insert(collection, database, case).replace(bytes([7] * 2), unique)
                answers.append(without_names(told(client, raw if collection == KNOWN else with_checksum(raw))))
        rows = replica_set.shared_client[database][collection].find({}, {"_id": 1}).sort("_id", 1)
        stored.append([each["_id"] for each in rows])
    half = len(answers) // 2
    assert answers[:half] == answers[half:]
    assert stored[0] == stored[1]
    assert set(stored[0]) >= {102, 103, 104}


def reads(gossip: dict[str, Any], database: str) -> dict[str, bytes]:
    def read(*elements: dict[str, Any], sections: tuple[bytes, ...] = ()) -> bytes:
        whole = b"".join(bson.encode(each)[4:-1] for each in ({"find": KNOWN}, {"filter": {"m": 1}}, *elements))
        return op_msg_bytes(b"\0" + (len(whole) + 5).to_bytes(4, "little") + whole + b"\0", *sections)

    sort = {"sort": {"_id": 1}}
    text = SESSION.decode("latin-1") + "0123456789abcdef"
    return {
        "usual": read(sort, {"lsid": lsid(1), "$clusterTime": gossip, "$db": database}),
        "other session": read(sort, {"lsid": lsid(2), "$clusterTime": gossip, "$db": database}),
        "session inside": read(sort, {"comment": {"lsid": lsid(3)}, "lsid": lsid(1), "$db": database}),
        "session inside of text": read(sort, {"comment": text, "lsid": lsid(1), "$db": database}),
        "session twice": read(sort, {"lsid": lsid(1)}, {"lsid": lsid(2)}, {"$db": database}),
        "database first": read({"$db": database}, sort, {"lsid": lsid(1)}),
        "database twice": read(sort, {"$db": database}, {"$db": "other"}),
        "time before the session": read(sort, {"$clusterTime": gossip, "lsid": lsid(1), "$db": database}),
        "time without a signature": read(
            sort, {"lsid": lsid(1), "$clusterTime": {"clusterTime": gossip["clusterTime"]}, "$db": database}
        ),
        "session of another form": read(sort, {"lsid": {"id": Binary(bytes(16), 3)}, "$db": database}),
        "number": read(sort, {"lsid": lsid(1), "txnNumber": Int64(1), "$db": database}),
        "another collection": op_msg_bytes(body({"find": PARSED, "filter": {"m": 1}, **sort, "$db": database})),
        "trailing sequence": read(sort, {"lsid": lsid(1), "$db": database}, sections=(sequence("x", {}),)),
        "batches": read(sort, {"lsid": lsid(1), "batchSize": 2, "$db": database}),
    }


@pytest.mark.parametrize("name", list(reads({"clusterTime": 1}, "d")))
def test_read_that_looks_like_the_usual_one(
    replica_set: MongodProcess, proxy_rs: ProxyProcess, database: str, name: str
) -> None:
    """Q1, X2: asked by two clients, and recognised the third time where it may be."""
    series = replica_set.shared_client[database][KNOWN]
    clear(replica_set, database, KNOWN)
    series.insert_many([row(number) for number in range(5)])
    gossip = replica_set.shared_client.admin.command("ping")["$clusterTime"]
    asked = reads(gossip, database)
    with RawClient(proxy_rs.port) as client, RawClient(proxy_rs.port) as another:
        expected = told(client, with_checksum(asked[name]))
        for _ in range(3):
            assert told(client, asked["usual"])["ok"] == 1
            assert told(another, asked[name]) == expected
            assert told(client, asked[name]) == expected


def test_more_of_cursors_that_look_alike(replica_set: MongodProcess, proxy_rs: ProxyProcess, database: str) -> None:
    """C23: each goes on with its own cursor, and only under the name of its collection."""
    for collection in (KNOWN, PARSED):
        series = replica_set.shared_client[database][collection]
        clear(replica_set, database, collection)
        series.insert_many([row(number) for number in range(9)])
    with RawClient(proxy_rs.port) as client, RawClient(proxy_rs.port) as another:
        for reader in (client, another, client):
            cursors = {}
            for collection in (KNOWN, PARSED):
                read = {"find": collection, "sort": {"_id": 1}, "batchSize": 1, "lsid": lsid(1), "$db": database}
                cursors[collection] = reader.run(read)["cursor"]["id"]
            for number in (1, 2):
                for collection, cursor_id in cursors.items():
                    more = {"getMore": cursor_id, "collection": collection, "batchSize": 1, "lsid": lsid(1)}
                    reply = reader.run({**more, "$db": database})["cursor"]
                    assert [each["_id"] for each in reply["nextBatch"]] == [number]
                    assert (reply["id"], reply["ns"]) == (cursor_id, f"{database}.{collection}")
            wrong = {"getMore": cursors[KNOWN], "collection": PARSED, "batchSize": 1, "lsid": lsid(1), "$db": database}
            assert reader.run(wrong)["ok"] == 0
            strange = {"getMore": Int64(4711), "collection": KNOWN, "batchSize": 1, "lsid": lsid(1), "$db": database}
            assert reader.run(strange)["code"] == 43


def test_an_error_that_quotes_no_valid_text_is_passed_on(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str
) -> None:
    """Q1: the server quotes what it was sent, also to a read whose plan is known."""
    mongod.shared_client[db_name].create_collection(KNOWN, timeseries={"timeField": "t", "metaField": "m"})

    def find(mode: bytes) -> bytes:
        preference = bson.encode({"$readPreference": {"mode": "nearest"}}).replace(b"nearest", mode)[4:-1]
        elements = bson.encode({"find": KNOWN})[4:-1] + preference + bson.encode({"$db": db_name})[4:-1]
        return op_msg_bytes(b"\0" + (len(elements) + 5).to_bytes(4, "little") + elements + b"\0")

    with RawClient(proxy.port) as client:
        for _ in range(4):
            assert told(client, find(b"nearest"))["ok"] == 1
        client.send(find(b"n\x80arest"))
        reply = client.receive()
        assert reply is not None
        code = fields_of(op_msg.parse(reply).body)[b"code"]
        assert code[1] in (2, 22), reply.raw
