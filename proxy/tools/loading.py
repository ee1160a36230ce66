"""Sends rows to a collection over several connections, and finds out which of them are stored already."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import bson
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from catalog.bson.raw import fields_of
from proxy.settings.wording import counted
from proxy.tools.files import CODEC, shown_document
from proxy.tools.grouping import Sendable, batches, lanes
from proxy.tools.rows import BadRow
from proxy.tools.targets import Fields, RawCollection

MOST_ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 1.0
"""If two looks this far apart find the same rows, nothing that was sent before is still being written."""
IDS_IN_A_QUESTION: Final = 20_000

ROW_CODES: Final = frozenset({2, 9, 14, 15, 22, 52, 56, 57, 121, 10334, 11000})
"""Errors that are the fault of one row; others concern all of them."""
TRANSIENT_CODES: Final = frozenset({6, 7, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
"""The row may be written by another attempt."""

_Key: TypeAlias = tuple[bytes, int]


@dataclass(slots=True)
class Sent:
    """What has become of rows: how many are stored now, were stored before, and those that the server refused."""

    stored: int = 0
    duplicates: int = 0
    refused: list[BadRow] = field(default_factory=list)

    def add(self, other: Sent) -> None:
        """Add the numbers of other rows."""
        self.stored += other.stored
        self.duplicates += other.duplicates
        self.refused += other.refused


class Loader:
    """Sends rows; ``stored`` is called with the number of rows of each command that was acknowledged."""

    def __init__(
        self,
        collection: RawCollection,
        fields: Fields,
        *,
        connections: int,
        batch_rows: int,
        on_stored: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._collection = collection
        self._fields = fields
        self._connections = connections
        self._batch_rows = batch_rows
        self._on_stored = on_stored
        concern = collection.write_concern.document
        self._write_concern = {"writeConcern": concern} if concern else {}
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="import")

    def close(self) -> None:
        """End the threads, when what they send has ended."""
        self._threads.shutdown(cancel_futures=True)

    def send(self, rows: Sequence[Sendable]) -> Callable[[], Sent]:
        """Begin to send rows; the result waits until all are stored or refused. It raises ``PyMongoError``."""
        pending = [self._threads.submit(self._send_lane, lane) for lane in lanes(rows, self._connections)]

        def result() -> Sent:
            sent = Sent()
            for each in pending:
                sent.add(each.result())
            return sent

        return result

    def _send_lane(self, lane: Sequence[Sendable]) -> Sent:
        sent = Sent()
        for batch in batches(lane, self._batch_rows):
            sent.add(self._send_batch(batch))
            self._on_stored(len(batch))
        return sent

    def _send_batch(self, batch: Sequence[Sendable]) -> Sent:
        """Send a batch until its outcome is known; rows whose outcome was unknown are looked for first."""
        found = Sent()
        pause_seconds = FIRST_PAUSE_SECONDS
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                if attempt > 1:
                    batch, stored = self.missing(batch)
                    found.stored += stored
                found.refused += self._insert(batch)
                found.stored += len(batch) - len(found.refused)
            except AutoReconnect:
                if attempt == MOST_ATTEMPTS:
                    raise
            else:
                return found
            time.sleep(pause_seconds)
            pause_seconds *= 2
        raise AssertionError("unreachable")

    def _insert(self, batch: Sequence[Sendable]) -> list[BadRow]:
        """The rows that the server refused; raises ``PyMongoError``."""
        if not batch:
            return []
        # insert_many does the same in several times as long.
        insert = {"insert": self._collection.name, "ordered": False, **self._write_concern}
        insert["documents"] = [RawBSONDocument(row.document) for row in batch]
        reply = self._collection.database.command(insert, codec_options=CODEC)
        errors = reply.get("writeErrors", [])
        codes = {each.get("code") for each in errors}
        if codes & TRANSIENT_CODES:
            raise AutoReconnect(f"the server did not write {counted(len(errors), 'row')}: {errors[0].get('errmsg')}")
        if codes - ROW_CODES:
            raise OperationFailure(str(errors[0].get("errmsg")), errors[0].get("code"), reply)
        return [_refused(batch[each["index"]], str(each.get("errmsg", "refused"))) for each in errors]

    # --- rows that may be stored already -------------------------------------------------------------------------

    def missing(self, rows: Sequence[Sendable]) -> tuple[list[Sendable], int]:
        """The rows that are not stored, and how many are. Waits until writes that were begun before have ended."""
        stored = self._stored(rows)
        while True:
            time.sleep(QUIET_SECONDS)
            again = self._stored(rows)
            if again == stored:
                break
            stored = again
        left = Counter(stored)
        missing = []
        for row in rows:
            key = (row.id, row.time_ms)
            if left[key]:
                left[key] -= 1
            else:
                missing.append(row)
        return missing, len(rows) - len(missing)

    def _stored(self, rows: Sequence[Sendable]) -> Counter[_Key]:
        """Which of these rows are stored, by ``_id`` and time, and how often."""
        counted: Counter[_Key] = Counter()
        # Neighbours in time are looked for together, so that few buckets are unpacked.
        ordered = sorted(rows, key=lambda row: row.time_ms)
        for start in range(0, len(ordered), IDS_IN_A_QUESTION):
            for raw in self._found(ordered[start : start + IDS_IN_A_QUESTION]):
                values = fields_of(raw)
                moment = values.get(self._fields.time, b"")
                if moment[:1] == b"\x09":
                    counted[values.get(b"_id", b""), int.from_bytes(moment[1:9], "little", signed=True)] += 1
        wanted = {(row.id, row.time_ms) for row in rows}
        return Counter({key: count for key, count in counted.items() if key in wanted})

    def _found(self, rows: Sequence[Sendable]) -> Iterator[bytes]:
        time_name = self._fields.time.decode()
        bounds = {"$gte": DatetimeMS(rows[0].time_ms), "$lte": DatetimeMS(rows[-1].time_ms)}
        ids = [_value(row.id) for row in rows]
        query = {time_name: bounds, "_id": {"$in": ids}}
        for each in self._collection.find(query, {"_id": 1, time_name: 1}):
            yield bytes(each.raw)


def _value(element_value: bytes) -> object:
    document = element_value[:1] + b"v\0" + element_value[1:]
    raw = (len(document) + 5).to_bytes(4, "little") + document + b"\0"
    return bson.decode(raw, codec_options=CODEC)["v"]


def _refused(row: Sendable, reason: str) -> BadRow:
    return BadRow(row.row.where, row.row.end, reason, shown_document(row.row.document), row.row.skip)


__all__ = ["Loader", "PyMongoError", "Sent"]
