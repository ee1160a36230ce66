"""Inserts as drivers send them, and what recognises them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import bson

from catalog.commit.tenure import SessionKey
from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.plain_insert import Inserts
from proxy.request import router
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.ports import GoOn
from proxy.wire.message import Message
from tests.support.recognising import Recognising

COLLECTION = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
DOCUMENTS = tuple(bson.encode({"t": bson.DatetimeMS(second), "v": second}) for second in range(3))


def message(
    *documents: bytes, body: dict[str, object] | None = None, flags: int = 0, identifier: bytes = b"documents"
) -> bytes:
    encoded = bson.encode(body or {"insert": "x", "ordered": True, "$db": "d"})
    sequence = identifier + b"\0" + b"".join(documents)
    sections = b"\0" + encoded + b"\1" + struct.pack("<i", 4 + len(sequence)) + sequence
    return struct.pack("<iiiiI", 20 + len(sections), 7, 0, 2013, flags) + sections


def retryable(
    number: int, *, documents: tuple[bytes, ...] = DOCUMENTS[:1], session_id: bytes = b"s" * 16, **more: object
) -> bytes:
    session = {"id": bson.Binary(session_id, 4)}
    body = {"insert": "x", "ordered": True, "txnNumber": bson.Int64(number), "lsid": session, **more, "$db": "d"}
    return message(*documents, body=body)


@dataclass(frozen=True)
class Submitted:
    """What an insert was staged as."""

    template: InsertTemplate
    documents: tuple[bytes, ...]
    session: bytes
    txn_number: int | None


class ElsewhereDouble:
    """Other processes, which have to be asked about some numbers."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = set(numbers)
        self.waiting: list[GoOn] = []
        self.sent_seconds: list[float] = []

    def concerns(self, client: SessionKey, number: int) -> bool:
        return number in self.numbers

    def ask(self, client: SessionKey, number: int, go_on: GoOn, sent_seconds: float = -math.inf) -> None:
        self.waiting.append(go_on)
        self.sent_seconds.append(sent_seconds)

    def answer(self, error: CommandError | None = None, *, is_certain: bool = True) -> None:
        """All that wait go on; if this is certain, nothing has to be asked any more."""
        if is_certain:
            self.numbers.clear()
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on(error)


class Inserting(Recognising):
    """Inserts that are recognised; what takes them keeps what it is told."""

    retryable_writes = True

    def __init__(self, limit_bytes: int = 100_000) -> None:
        super().__init__(limit_bytes=limit_bytes)
        self.found = COLLECTION
        self.submitted: list[Submitted] = []
        self.is_native = False
        """Whether all inserts are for the backend itself, or none."""
        self.unseen: list[bytes] = []
        """The documents of inserts that are not for the catalog."""
        self.relayed: list[int] = []
        """The sizes of inserts that were relayed."""
        self.inserts = Inserts(self)

    def documents_to_relay(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        pieces: Sequence[bytes],
        start: int,
        size_bytes: int,
        session: bytes,
        txn_number: int | None,
    ) -> int:
        assert sum(map(len, pieces)) - start == size_bytes
        return size_bytes if self.is_native else 0

    def relay_begins(self, exchange: Exchange, template: InsertTemplate, count: int, size_bytes: int) -> None:
        assert self.is_native
        assert count == size_bytes
        self.relayed.append(size_bytes)

    def relay_unseen(self, collection: VirtualCollection, documents: Sequence[bytes]) -> None:
        """See ``InsertPort``."""
        self.unseen.extend(documents)

    def submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        self.submitted.append(Submitted(template, tuple(documents), session, txn_number))

    def learn(self, raw: bytes, collection: VirtualCollection = COLLECTION) -> bool:
        """As it is done for an insert that was not recognised; whether it is the catalog's."""
        command = parse_command(Message.from_bytes(raw))
        template, is_started = self.inserts.submit(self.exchange(raw), command, collection)
        assert is_started is (template is not None and not self.is_native)
        if template is not None and template.repeats(command):
            self.remember(raw, router.Ingest(collection), template)
        return template is not None

    def find(self, raw: bytes) -> Submitted | None:
        """What a recognised insert is staged as."""
        self.submitted.clear()
        return self.submitted[0] if self.recognises(raw) is not None else None


def remembering(raw: bytes, limit_bytes: int = 100_000) -> Inserting:
    inserting = Inserting(limit_bytes)
    assert inserting.learn(raw)
    return inserting
