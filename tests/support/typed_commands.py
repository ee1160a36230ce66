"""Commands, their fields that the proxy reads, and what each field needs beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import bson
from bson import Binary, Int64

from tests.support.bson_values import Value, document, string, value_of, values
from tests.support.wire import WireClient

ROW = {"t": bson.DatetimeMS(0), "m": 1}

Fields = dict[str, Value]
Make = Callable[[], Fields]

TOO_SLOW = 50
TOO_LONG = (0.0, 159, None, [])
ACCEPTED = (1.0, None, None, [])
IS_TIMESERIES = (0.0, 166, None, [])
"""What servers say of ``findAndModify``, which the proxy carries out where it removes."""
NOT_ENABLED = (0.0, 72, None, [])
"""What 5.0.4 says of ``delete``, which the proxy carries out (V1)."""
UNREAD_BEFORE_6_0 = frozenset({"loadBalanced"})
"""Accepted with any value; the proxy judges them as 6.0 does."""


def insert() -> Fields:
    return {"insert": string("ts"), "documents": value_of([ROW])}


def find() -> Fields:
    return {"find": string("ts")}


def aggregate() -> Fields:
    return {"aggregate": string("ts"), "pipeline": value_of([]), "cursor": value_of({})}


def count() -> Fields:
    return {"count": string("ts")}


def distinct() -> Fields:
    return {"distinct": string("ts"), "key": string("m")}


def delete() -> Fields:
    return {"delete": string("ts"), "deletes": value_of([{"q": {"m": 77}, "limit": 0}])}


def find_and_modify() -> Fields:
    return {"findAndModify": string("ts"), "query": value_of({"m": 77}), "remove": value_of(True)}


def get_more() -> Fields:
    return {"getMore": value_of(Int64(77)), "collection": string("ts")}


def kill_cursors() -> Fields:
    return {"killCursors": string("ts"), "cursors": value_of([Int64(77)])}


def list_indexes() -> Fields:
    return {"listIndexes": string("ts")}


def create_indexes() -> Fields:
    return {"createIndexes": string("ts"), "indexes": value_of([{"key": {"m": 1}, "name": "m_1"}])}


def explain() -> Fields:
    return {"explain": value_of({"find": "ts"})}


def stats() -> Fields:
    return {"collStats": string("ts")}


def hello() -> Fields:
    return {"hello": value_of(1)}


EVERYWHERE = ("lsid", "$clusterTime", "maxTimeMS", "comment", "$db", "apiVersion", "apiStrict", "apiDeprecationErrors")
RETRYABLE = ("txnNumber", "stmtId", "stmtIds", "autocommit", "startTransaction")

COMMANDS: Mapping[Make, tuple[str, ...]] = {
    insert: (
        "insert", "documents", "documents.0", "ordered", "writeConcern", "writeConcern.w", "writeConcern.j",
        "writeConcern.wtimeout", "writeConcern.fsync", "bypassDocumentValidation", *RETRYABLE, *EVERYWHERE,
    ),
    find: (
        "find", "filter", "limit", "skip", "batchSize", "singleBatch", "sort", "projection", "hint", "let", "tailable",
        "readConcern", "readConcern.level", "collation", "awaitData", "noCursorTimeout", "returnKey", *EVERYWHERE,
    ),
    aggregate: (
        "aggregate", "pipeline", "pipeline.0", "cursor", "cursor.batchSize", "explain", "hint", "let", "collation",
        "readConcern", "allowDiskUse", "bypassDocumentValidation", *EVERYWHERE,
    ),
    count: ("count", "query", "limit", "skip", "hint", "collation", "readConcern", *EVERYWHERE),
    distinct: ("distinct", "key", "query", "collation", "readConcern", *EVERYWHERE),
    delete: ("delete", "deletes", "deletes.0", "ordered", "writeConcern", "writeConcern.w", "let", *EVERYWHERE),
    find_and_modify: (
        "findAndModify", "query", "remove", "sort", "fields", "new", "upsert", "update", "writeConcern",
        "writeConcern.w", "writeConcern.j", "writeConcern.wtimeout", *EVERYWHERE,
    ),
    get_more: ("getMore", "collection", "batchSize", *EVERYWHERE),
    kill_cursors: ("killCursors", "cursors", "cursors.0", *EVERYWHERE),
    list_indexes: ("listIndexes", "cursor", "cursor.batchSize", *EVERYWHERE),
    create_indexes: ("createIndexes", "indexes", "indexes.0", "commitQuorum", "writeConcern", *EVERYWHERE),
    explain: ("explain", "explain.find", "verbosity", *EVERYWHERE),
    stats: ("collStats", "scale", *EVERYWHERE),
    hello: (
        "hello", "helloOk", "compression", "client", "topologyVersion", "maxAwaitTimeMS", "topologyVersion.processId",
        "topologyVersion.counter", "saslSupportedMechs", "speculativeAuthenticate", "loadBalanced", "hostInfo",
        "forShell", "internalClient",
    ),
}  # fmt: skip


def with_field(fields: Fields, path: str, value: Value) -> Fields:
    """The command with one value put in."""
    name, _, inner = path.partition(".")
    if not inner:
        return {**fields, name: value}
    if inner == "0":
        return {**fields, name: (4, document({"0": value}))}
    kind, raw = fields.get(name, value_of({}))
    assert kind == 3
    known = {each: value_of(held) for each, held in bson.decode(raw).items()}
    return {**fields, name: (3, document({**known, inner: value}))}


def companions(fields: Fields, path: str) -> Fields:
    """What the field needs beside it."""
    if path in RETRYABLE:
        fields = {**fields, "lsid": value_of({"id": Binary.from_uuid(uuid4())}), "txnNumber": value_of(Int64(1))}
    if path in ("autocommit", "startTransaction"):
        fields = {**fields, "autocommit": value_of(False), "startTransaction": value_of(True)}
    if path in ("apiStrict", "apiDeprecationErrors"):
        fields = {**fields, "apiVersion": string("1")}
    if path == "maxAwaitTimeMS":
        stale = {"processId": bson.ObjectId(bytes(12)), "counter": Int64(0)}
        fields = {**fields, "topologyVersion": value_of(stale)}
    if path.startswith("topologyVersion"):
        stale = {"processId": bson.ObjectId(bytes(12)), "counter": Int64(0)}
        fields = {**fields, "topologyVersion": value_of(stale), "maxAwaitTimeMS": value_of(Int64(1))}
    return fields


def refusal(make: Make, version: tuple[int, ...]) -> tuple[Any, ...] | None:
    """What a server of ``version`` says of the command with any values that it accepts; ``None`` if it runs it."""
    if make is find_and_modify:
        return IS_TIMESERIES
    return NOT_ENABLED if make is delete and version < (6,) else None


def cases(make: Make, version: tuple[int, ...]) -> Iterator[tuple[str, str, Fields]]:
    """Every field of the command with a value of every type: the field, a word for the value, the command.

    Without the fields that a server of ``version`` does not read.
    """
    for path in COMMANDS[make]:
        if version < (6,) and path in UNREAD_BEFORE_6_0:
            continue
        for word, value in values("ts").items():
            yield path, word, with_field(companions(make(), path), path, value)


class Asked:
    """One end of a comparison: a server or the proxy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = WireClient(port)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def says(self, fields: Fields, *, anew: bool = False) -> tuple[Any, ...]:
        """Whether it accepts the command, the code of its error, how many documents were concerned, further errors.

        ``anew``: over a new connection.
        """
        if anew:
            self._client.close()
            self._client = WireClient(self._port)
        try:
            said = self._client.command(document(fields))
        except ConnectionError:
            self._client = WireClient(self._port)
            return ("closed",)
        errors = [error["code"] for error in said.get("writeErrors", [])]
        if said.get("code") == TOO_SLOW:
            # What a millisecond is enough for differs from time to time.
            return ACCEPTED
        return said["ok"], said.get("code"), None if errors else said.get("n"), errors
