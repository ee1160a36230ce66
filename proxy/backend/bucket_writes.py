"""Writes buckets: the part of ``catalog.ports.BucketStore`` that every commit passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.commit.empty_timestamps import has_empty_timestamp, inserting_statement
from catalog.errors import BackendUnavailable, Fenced
from catalog.internal_errors import internal_error
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import BulkOutcome, MaySend, OnOutcome, Rejected, Unknown, WriteConcern
from proxy.backend.access_probe import BUCKETS_CLOSED
from proxy.backend.bulk_write import RESEND_PAUSE_SECONDS, bulk_write, outcome_of_reply
from proxy.backend.collection_uuid_check import CollectionUuidCheck
from proxy.backend.replication_wait import Attempt
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending, ServiceAnswer
from proxy.backend.write_concern_waits import WriteConcernWaits
from proxy.backend.write_numbers import WriteNumber

BODIES_LIMIT: Final = 4096
"""How many bodies of commands are kept."""
_SEND_AGAIN: Final = (
    "the server has closed the namespaces of bucket collections; nothing was written, send the insert again"
)

_AS_IT_IS: Final = Attempt.AS_IT_IS

_BodyKey: TypeAlias = tuple[str, Namespace, bytes, bytes, Attempt]


class BucketWrites:
    """Sends inserts and updates of bucket documents."""

    def __init__(
        self,
        pool: ServicePool,
        *,
        sends_uuid: bool,
        begins: Callable[[VirtualCollection], None],
        waits: WriteConcernWaits | None,
        closed: Callable[[Namespace], None],
    ) -> None:
        """``sends_uuid``: the backend supports ``collectionUUID`` (6.0). ``waits``: for replica sets.

        ``begins`` is called before each write, ``closed`` with a bucket namespace that the server refuses as such.
        """
        self._pool = pool
        self._sends_uuid = sends_uuid
        self._watch = None if sends_uuid else CollectionUuidCheck(pool)
        self._begins = begins
        self._waits = waits
        self._closed = closed
        self._bodies: dict[_BodyKey, bytes] = {}

    def begin(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        told: OnOutcome,
        *,
        grows: bool,
    ) -> bool:
        """Send a write if that takes no wait; see ``catalog.ports.BucketStore.begin``.

        Replies of replica sets, and of servers that check no UUID, are followed by further commands.
        """
        if self._waits is not None or self._watch is not None or (not grows and has_empty_timestamp(statements[0])):
            return False
        self._begins(collection)
        command, identifier = ("update", "updates") if grows else ("insert", "documents")
        body = self._body(command, collection, write_concern, _AS_IT_IS)
        write = _Write(self, collection, told)
        return self._pool.begin(write.answered, body, deadline_seconds, identifier, statements)

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        """Insert new buckets; see ``catalog.ports.BucketStore.insert``."""
        command, identifier, sent = "insert", "documents", documents
        if has_empty_timestamp(documents[0]):
            command, identifier, sent = "update", "updates", [inserting_statement(each) for each in documents]
        outcome = await self._send(command, identifier, collection, sent, write_concern, deadline_seconds, may_send)
        if self._watch is None:
            return outcome
        return await self._watch.judge(collection, documents, outcome, deadline_seconds)

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        """Apply update statements to buckets; see ``catalog.ports.BucketStore.update``."""
        return await self._send("update", "updates", collection, statements, write_concern, deadline_seconds, may_send)

    async def _send(
        self,
        command: str,
        identifier: str,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None,
    ) -> BulkOutcome:
        self._begins(collection)
        numbers = self._pool.family.numbers
        used: list[WriteNumber] = []

        def may_send_numbered() -> bool:
            assert may_send is not None
            return may_send() and (numbers is None or numbers.may_take())

        def numbered(body: bytes) -> bytes:
            assert numbers is not None
            used.append(numbers.take())
            return used[-1].numbered(body)

        async def send(attempt: Attempt) -> bytes:
            body = self._body(command, collection, write_concern, attempt)
            return await self._pool.request(
                body,
                deadline_seconds,
                identifier,
                documents,
                None if may_send is None else may_send_numbered,
                None if numbers is None else numbered,
            )

        outcome: BulkOutcome | None = None
        try:
            outcome = await bulk_write(self._pool, self._waits, write_concern, collection.buckets, send)
        finally:
            is_fenced = numbers is not None and numbers.ended(used, outcome)
        return Rejected(Fenced()) if is_fenced else self._judged(collection, outcome)

    def outcome(self, collection: VirtualCollection, answer: ServiceAnswer, sent_at_seconds: float) -> BulkOutcome:
        """The outcome of a write that was begun."""
        if isinstance(answer, LostAfterSending):
            return Unknown(answer)
        outcome = outcome_of_reply(answer, sent_at_seconds)
        if isinstance(outcome, Unknown):
            self._pool.forget_primary()
        return self._judged(collection, outcome)

    def _judged(self, collection: VirtualCollection, outcome: BulkOutcome) -> BulkOutcome:
        if isinstance(outcome, Rejected) and outcome.error.code == BUCKETS_CLOSED:
            self._closed(collection.buckets)
            return Rejected(BackendUnavailable(_SEND_AGAIN, code=BUCKETS_CLOSED))
        return outcome

    def _body(
        self, command: str, collection: VirtualCollection, write_concern: WriteConcern, attempt: Attempt
    ) -> bytes:
        # Not the whole collection, whose hash takes longer than all the rest.
        key = (command, collection.namespace, collection.uuid, write_concern.raw, attempt)
        body = self._bodies.get(key)
        if body is None:
            document: dict[str, Any] = {
                command: collection.buckets.collection,
                "ordered": False,
                "bypassDocumentValidation": True,
                "$db": collection.namespace.database,
            }
            if write_concern.raw:
                document["writeConcern"] = RawBSONDocument(write_concern.raw)
            document.update(attempt.value)
            if self._sends_uuid and collection.uuid:
                document["collectionUUID"] = Binary(collection.uuid, 4)
            if len(self._bodies) >= BODIES_LIMIT:
                self._bodies.clear()
            body = self._bodies[key] = encode(document)
        return body


class _Write:
    """A write that was begun."""

    def __init__(self, writes: BucketWrites, collection: VirtualCollection, told: OnOutcome) -> None:
        self._writes = writes
        self._collection = collection
        self._told = told
        self._sent_at_seconds = time.perf_counter()

    def answered(self, answer: ServiceAnswer) -> None:
        """Called by the connection."""
        try:
            outcome = self._writes.outcome(self._collection, answer, self._sent_at_seconds)
        except Exception as error:
            # The event loop reports it, but the writers must not wait for ever.
            self._tell_later(Unknown(internal_error("reading the reply to a write", error)))
            raise
        if isinstance(outcome, Unknown):
            self._tell_later(outcome)
        else:
            self._told(outcome)

    def _tell_later(self, outcome: Unknown) -> None:
        asyncio.get_running_loop().call_later(RESEND_PAUSE_SECONDS, self._told, outcome)
