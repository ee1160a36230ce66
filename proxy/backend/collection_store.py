"""Inserts measurements into time-series collections by public commands, over service connections.

Where the backend has retryable writes, each command has a number in a session of this process, so that it can be sent
again after a lost reply: the server then executes what it has not executed yet, and repeats what it has replied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.errors import UNAUTHORIZED, Fenced
from catalog.kernel import Measurement
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import BulkOutcome, MaySend, Rejected, WriteConcern
from proxy.backend.bulk_write import bulk_write
from proxy.backend.replication_wait import Attempt
from proxy.backend.row_search import RowSearch
from proxy.backend.service import ServicePool
from proxy.backend.write_concern_waits import WriteConcernWaits
from proxy.backend.write_numbers import WriteNumber
from proxy.request.own_steps import LONGEST_TEXT, client_message

NOTHING: Final = "tsproxy.nothing"
"""A collection that need not exist: writes that change nothing go there, only to wait for their write concern."""


class CollectionStore:
    """Implements the ports of ``proxy.inserts.coalescing`` and of ``catalog.commit.restart_dedup``."""

    def __init__(self, pool: ServicePool, rows: RowSearch, waits: WriteConcernWaits | None) -> None:
        """``rows`` searches the collections themselves; ``waits``: for replica sets."""
        self._pool = pool
        self._rows = rows
        self._waits = waits
        self._numbers = pool.family.numbers

    def next_number(self) -> WriteNumber | None:
        """The number for the next command; ``None`` if it cannot be sent again."""
        return None if self._numbers is None else self._numbers.take()

    def settled(self, number: WriteNumber | None, *, is_known: bool = True) -> None:
        """The command with this number will not be sent again; ``is_known``: its outcome."""
        if number is not None and self._numbers is not None:
            self._numbers.free(number, is_answered=is_known)

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        number: WriteNumber | None,
        deadline_seconds: float,
        may_send: MaySend | None = None,
        *,
        ordered: bool,
    ) -> BulkOutcome:
        """Insert the documents; errors have the server's own text, by position."""
        self._rows.writes(collection)
        body: dict[str, Any] = {"insert": collection.namespace.collection, "ordered": ordered}
        if number is not None:
            body |= {"lsid": number.session, "txnNumber": Int64(number.number)}
        numbers = self._numbers

        def may_send_numbered() -> bool:
            assert may_send is not None
            return may_send() and (numbers is None or number is None or numbers.may_send(number))

        asked = None if may_send is None else may_send_numbered
        outcome = await self._send(
            collection.namespace, body, "documents", documents, write_concern, deadline_seconds, asked
        )
        if numbers is not None and number is not None and numbers.meets_fence(number, outcome):
            return Rejected(Fenced())
        return outcome

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        """Updates that match nothing, of ``NOTHING``, for their write concern."""
        namespace = Namespace(collection.namespace.database, NOTHING)
        body = {"update": namespace.collection, "ordered": False}
        return await self._send(namespace, body, "updates", statements, write_concern, deadline_seconds)

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        async with self._rows.turn(collection, deadline_seconds):
            return await self._rows.stored(collection, measurements, deadline_seconds)

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        async with self._rows.turn(collection, deadline_seconds):
            return await self._rows.earlier(
                collection, measurements, window_seconds, deadline_seconds, until_now=until_now
            )

    async def _send(
        self,
        namespace: Namespace,
        body: dict[str, Any],
        identifier: str,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        if write_concern.raw:
            body["writeConcern"] = RawBSONDocument(write_concern.raw)
        body["$db"] = namespace.database

        async def send(attempt: Attempt) -> bytes:
            message = encode({**body, **dict(attempt.value)})
            return await self._pool.request(message, deadline_seconds, identifier, documents, may_send)

        nothing = Namespace(namespace.database, NOTHING)
        return await bulk_write(self._pool, self._waits, write_concern, nothing, send, _own_message)


def _own_message(error: Mapping[str, Any]) -> str:
    """The server's text about one document: it is for the client that has sent this document."""
    code, text = int(error.get("code", 1)), str(error.get("errmsg", ""))
    if code == UNAUTHORIZED or len(text) > LONGEST_TEXT:
        return client_message(code, text, holds_data=False)
    return text
