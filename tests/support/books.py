"""What writers were promised, and whether what is read keeps it: every measurement once, and each value of it."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import bson
import pymongo
from bson import ObjectId

START = dt.datetime(2024, 5, 17, 12, 0, tzinfo=dt.UTC)

UNPACK = {"$_internalUnpackBucket": {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}


def new_id(series: int) -> ObjectId:
    """The ``_id`` of another measurement of this series."""
    return ObjectId(os.urandom(11) + bytes([series]))


def measurement_of(identity: ObjectId, payload: bytes | str = "") -> dict[str, Any]:
    """The measurement with this ``_id``, which determines all others of its values.

    One in twenty is two hours old, and a third has one more field. Its meta value is ``s`` and the series; a change of
    the meta value (U3) may make another letter of the ``s``.
    """
    digest = hashlib.sha256(identity.binary).digest()
    offset = dt.timedelta(milliseconds=int.from_bytes(digest[:4]) % 600_000)
    if digest[4] < 256 // 20:
        offset -= dt.timedelta(hours=2)
    series = f"s{identity.binary[-1]}"
    measurement = {"_id": identity, "t": START + offset, "m": series, "v": int.from_bytes(digest[5:9]) / 8}
    if digest[9] < 256 // 3:
        measurement["w"] = {"text": digest[10:14].hex(), "list": [digest[14], None, digest[15] / 4]}
    if payload:
        measurement["payload"] = payload
    return measurement


class Promise(NamedTuple):
    """What every read that begins now has to show, and must not."""

    acknowledged: frozenset[ObjectId]
    deleted: frozenset[ObjectId]


@dataclass(slots=True)
class Books:
    """``_id`` of measurements, by what a client knows of them.

    ``in_doubt``: their insert had no answer, or failed. ``deleted`` were acknowledged before; a delete of those in
    ``perhaps_deleted`` has begun, and may have no answer ever.
    """

    acknowledged: set[ObjectId] = field(default_factory=set)
    in_doubt: set[ObjectId] = field(default_factory=set)
    deleted: set[ObjectId] = field(default_factory=set)
    perhaps_deleted: set[ObjectId] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    longest_seconds: float = 0.0
    payload: bytes | str = ""

    @classmethod
    def of_all(cls, several: Iterable[Books]) -> Books:
        """What all of these clients know."""
        together = cls()
        for each in several:
            together.add(each)
        return together

    def add(self, other: Books) -> None:
        """Add those of other clients."""
        self.acknowledged |= other.acknowledged
        self.in_doubt |= other.in_doubt
        self.deleted |= other.deleted
        self.perhaps_deleted |= other.perhaps_deleted
        self.errors += other.errors
        self.longest_seconds = max(self.longest_seconds, other.longest_seconds)

    def promise(self) -> Promise:
        """What holds from now on."""
        return Promise(frozenset(self.acknowledged), frozenset(self.deleted))

    def check_read(self, rows: Iterable[Mapping[str, Any]], promise: Promise) -> Counter[ObjectId]:
        """Hold what a read that began with ``promise`` and ended now has found against it; returns what it found."""
        found = Counter[ObjectId]()
        for row in rows:
            identity = row["_id"]
            found[identity] += 1
            assert _content(row) == _content(measurement_of(identity, self.payload)), f"a changed measurement: {row}"
        doubled = [identity for identity, count in found.items() if count > 1]
        assert not doubled, f"{len(doubled)} measurements are there more than once: {self.errors}"
        missing = promise.acknowledged - self.deleted - self.perhaps_deleted - found.keys()
        assert not missing, f"{len(missing)} of {len(promise.acknowledged)} measurements are not there: {self.errors}"
        returned = promise.deleted & found.keys()
        assert not returned, f"{len(returned)} of {len(promise.deleted)} deleted measurements are there: {self.errors}"
        return found

    def check(self, server: pymongo.MongoClient[dict[str, Any]], database: str) -> None:
        """Of all that was promised, in the buckets themselves and as the server reads them; nobody may write."""
        promise = self.promise()
        stored = self.check_read(stored_rows(server, database), promise)
        assert stored.keys() <= self.acknowledged | self.in_doubt, "measurements that nobody has sent"
        read = self.check_read(server[database].c.find({}), promise)
        assert read == stored, "the server reads its buckets otherwise"


def bits_of(row: Mapping[str, Any]) -> bytes:
    """The whole row, bit for bit; buckets do not keep the order of fields."""
    return bson.encode(dict(sorted(row.items())))


def _content(row: Mapping[str, Any]) -> bytes:
    """As ``bits_of``, without the letter of the meta value."""
    return bits_of({**row, "m": row["m"][1:]})


def stored_rows(server: pymongo.MongoClient[dict[str, Any]], database: str) -> list[dict[str, Any]]:
    """The measurements in the buckets; checks that rows are numbered without holes on the way (W5)."""
    buckets = server[database]["system.buckets.c"]
    stored: list[dict[str, Any]] = []
    for bucket in buckets.find({}):
        if bucket["control"]["version"] == 1:
            columns = bucket["data"]
            rows = list(columns["t"])
            assert rows == [str(row) for row in range(len(rows))], "holes in a bucket"
            assert list(columns["_id"]) == rows
            for row in rows:
                values = {name: column[row] for name, column in columns.items() if row in column}
                stored.append({"m": bucket["meta"], **values})
        else:
            # Compressed (W6): the server knows how to read it.
            measurements = list(buckets.aggregate([{"$match": {"_id": bucket["_id"]}}, UNPACK]))
            assert len(measurements) == bucket["control"]["count"]
            stored.extend(measurements)
    return stored
