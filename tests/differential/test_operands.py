"""Operands of every BSON type in predicates: each command answers, or deletes, what it does on a plain collection.

The plain collection is the judge: native collections refuse most deletes and lose rows in some reads (H2-H4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument

from catalog.bson.raw import fields_of, iter_elements, unpack_int32
from proxy.wire import op_msg
from tests.support.mongod import MongodProcess
from tests.support.operands import PREDICATES, SCALARS, array_of, measurements, object_of, value_of
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command
from tests.support.wanted import SCALE

NOON = 1_700_000_000_000
LOSSY = (
    "undefined", "symbol", "pointer", "regex with unsorted flags", "reference with more before it", "reference",
    "document with a name twice", "array with odd names", "code with undefined in its scope", "bad text",
)  # fmt: skip
"""What a decoder in Python does not give back as it was."""
REFUSED = 72
"""What 5.0 says of an update, which the proxy sends as it is if it cannot decode it without loss (V1)."""
TWICE = SCALARS["document with a name twice"][5:-1]
PROJECTED = {"_id": 0, "n": 1, "x": 1, "m": 1}
Outcome = Any


class Server:
    """One database, asked in raw bytes."""

    def __init__(self, client: RawClient, database: str) -> None:
        self._client = client
        self._database = database

    def run(self, asked: Mapping[str, Any]) -> bytes:
        """The raw reply document, errors too."""
        self._client.send(command({**asked, "$db": self._database}))
        reply = self._client.receive()
        assert reply is not None
        return op_msg.parse(reply).body


def outcome(reply: bytes) -> Outcome:
    """What a command answered, to the byte: rows, count or values; of an error its code, of write errors theirs."""
    fields = fields_of(reply)
    if b"code" in fields:
        return unpack_int32(fields[b"code"], 1)[0]
    if b"cursor" in fields:
        return fields_of(fields[b"cursor"], 1)[b"firstBatch"]
    if b"values" in fields:
        return sorted(value for _, value in iter_elements(fields[b"values"], 1))
    errors = [fields_of(error, 1)[b"code"] for _, error in iter_elements(fields.get(b"writeErrors", _NONE), 1)]
    # The documents of a plain collection have an _id, and their fields in another order.
    removed = dict(iter_elements(fields[b"value"], 1)) if _is_object(fields) else None
    return fields.get(b"n"), errors, removed


_NONE = b"\x04\x05\0\0\0\0"


def _is_object(fields: Mapping[bytes, bytes]) -> bool:
    return fields.get(b"value", b"")[:1] == b"\x03"


MEASURED = {"timeseries": {"timeField": "t", "metaField": "m"}}


class Pair:
    """A collection behind the proxy and a plain one with the same documents."""

    def __init__(self, virtual: Server, plain: Server) -> None:
        self.virtual, self.plain = virtual, plain
        virtual.run({"create": "x", **MEASURED})
        self.documents = [RawBSONDocument(each) for each in measurements(NOON)]
        self.restore([])

    def same(self, asked: Mapping[str, Any]) -> Outcome:
        """The outcome, which must be equal on both."""
        virtual, plain = outcome(self.virtual.run(asked)), outcome(self.plain.run(asked))
        assert virtual == plain, asked
        return virtual

    def same_rows_left(self) -> list[int]:
        """The numbers of the rows on both, which must be equal."""
        asked = {"find": "x", "projection": {"n": 1, "_id": 0}, "sort": {"n": 1}, "batchSize": 10_000}
        return [unpack_int32(fields_of(row, 1)[b"n"], 1)[0] for _, row in iter_elements(self.same(asked), 1)]

    def restore(self, left: list[int]) -> None:
        """Insert again what is gone."""
        present = set(left)
        gone = [each for number, each in enumerate(self.documents) if number not in present]
        for server in (self.virtual, self.plain) if gone else ():
            assert outcome(server.run({"insert": "x", "documents": gone})) == (value_of(len(gone)), [], None)


@pytest.fixture
def pair(mongod: MongodProcess, proxy: ProxyProcess, db_name: str) -> Iterator[Pair]:
    """On a standalone."""
    with RawClient(proxy.port) as virtual, RawClient(mongod.port) as plain:
        servers = Server(virtual, f"{db_name}_v"), Server(plain, f"{db_name}_n")
        yield Pair(*servers)
        for server in servers:
            server.run({"dropDatabase": 1})


def predicates(names: Any) -> Iterator[RawBSONDocument]:
    """Each predicate with each of these operands."""
    for name in names:
        for predicate in PREDICATES.values():
            yield RawBSONDocument(predicate(SCALARS[name])[1:])


def test_reads_find_what_they_find_in_a_plain_collection(pair: Pair) -> None:
    for query in predicates(SCALARS):
        pair.same({"find": "x", "filter": query, "projection": PROJECTED, "sort": {"n": 1}, "batchSize": 10_000})
        stages = [{"$match": query}, {"$sort": {"n": 1}}, {"$project": PROJECTED}]
        pair.same({"aggregate": "x", "pipeline": stages, "cursor": {"batchSize": 10_000}})
        pair.same({"count": "x", "query": query})
        pair.same({"distinct": "x", "key": "n", "query": query})


def test_constants_of_expressions_and_variables_are_what_they_are(pair: Pair) -> None:
    for name, value in SCALARS.items():
        if name == "array with odd names":
            continue  # $literal gives it back numbered anew, also natively
        constant = RawBSONDocument(object_of({"c": object_of({"$literal": value})})[1:])
        first = [{"$sort": {"n": 1}}, {"$limit": 1}]
        pair.same({"aggregate": "x", "pipeline": [*first, {"$project": {"_id": 0, "n": 1}}, {"$addFields": constant}],
                   "cursor": {}})  # fmt: skip
        pair.same({"find": "x", "filter": {"n": 0}, "projection": RawBSONDocument(
            object_of({"_id": value_of(0), "c": object_of({"$literal": value})})[1:])})  # fmt: skip
        of_variable = {"$expr": {"$eq": ["$x", "$$v"]}}
        variables = RawBSONDocument(object_of({"v": object_of({"$literal": value})})[1:])
        stages = [{"$match": of_variable}, {"$sort": {"n": 1}}, {"$project": PROJECTED}]
        pair.same({"aggregate": "x", "pipeline": stages, "let": variables, "cursor": {"batchSize": 10_000}})
        deleted = {"delete": "x", "deletes": [{"q": of_variable, "limit": 0}], "let": variables}
        pair.same(deleted)
        pair.restore(pair.same_rows_left())


def test_values_of_every_type_come_back_from_distinct(pair: Pair) -> None:
    for number, document in enumerate(pair.documents):
        if TWICE in document.raw:
            continue  # an aggregation, which a distinct on a view is natively too, heeds the first of two equal names
        pair.same({"distinct": "x", "key": "x", "query": {"n": number}})


@pytest.mark.timeout(180)
def test_deletes_take_what_they_take_from_a_plain_collection(pair: Pair) -> None:
    for query in predicates(SCALARS if SCALE > 1 else LOSSY):
        pair.same({"delete": "x", "deletes": [{"q": query, "limit": 0}]})
        pair.restore(pair.same_rows_left())


@pytest.mark.timeout(180)
def test_one_is_deleted_only_if_one_is_in_a_plain_collection(pair: Pair) -> None:
    """Which one of several it is, nobody promises: so one that ``n`` names beside the operand."""
    for query in predicates(SCALARS if SCALE > 1 else LOSSY):
        found = outcome(pair.plain.run({"find": "x", "filter": query, "sort": {"n": 1}, "limit": 1}))
        rows = [] if isinstance(found, int) else list(iter_elements(found, 1))
        number = fields_of(rows[0][1], 1)[b"n"] if rows else value_of(0)
        one = RawBSONDocument(object_of({"$and": array_of(object_of({"n": number}), b"\x03" + query.raw)})[1:])
        pair.same({"delete": "x", "deletes": [{"q": one, "limit": 1}]})
        pair.restore(pair.same_rows_left())
        sorted_one = {"findAndModify": "x", "query": query, "sort": {"n": 1}, "remove": True, "fields": PROJECTED}
        pair.same(sorted_one)
        pair.restore(pair.same_rows_left())


def test_a_predicate_that_no_server_takes_is_refused_where_there_is_nothing(pair: Pair) -> None:
    for server in (pair.virtual, pair.plain):
        server.run({"delete": "x", "deletes": [{"q": {}, "limit": 0}]})
    for query in (RawBSONDocument(PREDICATES["is"](SCALARS["undefined"])[1:]), {"x": {"$unknown": 1}}):
        for limit in (0, 1):
            virtual = pair.same({"delete": "x", "deletes": [{"q": query, "limit": limit}]})
            assert virtual[1] == [value_of(2)]


def test_updates_of_meta_do_what_they_do_to_a_native_collection(pair: Pair, mongod_version: tuple[int, ...]) -> None:
    """Before 6.0 to a plain one, because a native one refuses all, and through the proxy those with lossy values."""
    for server in (pair.virtual, pair.plain):
        server.run({"create": "y", **(MEASURED if server is pair.virtual or mongod_version >= (6,) else {})})
        server.run({"insert": "y", "documents": pair.documents})
    projected = {"find": "y", "projection": {"_id": 0, "n": 1, "m": 1}, "sort": {"n": 1}, "batchSize": 10_000}
    for name, value in SCALARS.items():
        there = RawBSONDocument(object_of({"m": value})[1:])
        listed = RawBSONDocument(object_of({"m": object_of({"$in": array_of(value, value_of(0))})})[1:])
        change = RawBSONDocument(object_of({"$set": object_of({"m": value})})[1:])
        odd = there if value[:1] == b"\x03" else listed  # U2: an object in an array looks like a query to a server
        for query, update in (({}, change), (there, {"$set": {"m": 0}}), (odd, change), (there, {"$set": {"m": 1}})):
            asked = {"update": "y", "updates": [{"q": query, "u": update, "multi": True}]}
            if mongod_version < (6,) and name in LOSSY:
                assert outcome(pair.virtual.run(asked)) == REFUSED
                continue
            pair.same(asked)
            pair.same(projected)
