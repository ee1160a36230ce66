"""Reads that are sent at once, in front of a connection that remembers."""

from __future__ import annotations

from typing import Any

import bson
from bson import Int64

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames
from proxy.reads.inline_reads import InlineReads, SentStep
from proxy.reads.translate import Surroundings, TranslateHandler
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.upstream.connection import UpstreamConnection
from proxy.wire import op_msg
from proxy.wire.message import Message
from rewrite.profile import Profile
from rewrite.registry import REWRITERS
from tests.support.exchanges import Told
from tests.support.network import FakeClient, FakeTransport
from tests.support.raw_wire import document_of
from tests.support.scopes import TARGET
from tests.support.sessions import session

BUCKETS = "db.system.buckets.x"


class NoService:
    async def run_raw(self, database: str, body: Any) -> bytes:
        raise BackendUnavailable("nowhere")


class Reads:
    """``InlineReads`` in front of a connection that remembers."""

    def __init__(self) -> None:
        self.cursors = CursorNames()
        self.allowed: bool | None = True
        self.told = Told()
        self.again: list[bytes] = []
        self.profile = Profile()
        handler = TranslateHandler(
            Surroundings(
                rewriters=REWRITERS,
                profile=lambda: self.profile,
                resolve=lambda _: TARGET,
                catalog_stats=lambda _: {},
                service=NoService(),
                take_effect=lambda _: None,
                cursors=self.cursors,
            )
        )
        self.reads = InlineReads(handler, self)
        self.session = session()
        self.transport = FakeTransport()
        self.connection = UpstreamConnection("backend:1", lambda: None, lambda _: None)
        self.connection.connection_made(self.transport)
        self.session.upstream._connection = self.connection
        self.client = FakeClient()

    def known_to_read_buckets(self, session: object, namespace: Namespace) -> bool | None:
        return self.allowed

    def remember(self, exchange: Exchange, step: SentStep) -> None:
        self.again.append(step.document)

    @property
    def outcomes(self) -> list[type]:
        return [type(outcome) for outcome in self.told.outcomes]

    def start(self, raw: bytes, collection: VirtualCollection | None = TARGET) -> bool:
        message = Message.from_bytes(raw)
        exchange = Exchange(self.session, self.client, message, self.told)
        return self.reads.start(exchange, parse_command(message), collection, self)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [document_of(Message.from_bytes(raw)) for raw in self.transport.written]

    def answer(self, document: dict[str, Any], size: int = 1_000_000) -> dict[str, Any] | None:
        raw = op_msg.build(5, 6, bson.encode(document))
        for start in range(0, len(raw), size):
            self.connection.data_received(raw[start : start + size])
        return document_of(Message.from_bytes(self.client.written.pop())) if self.client.written else None


def cursor_reply(cursor_id: int, batch: str = "firstBatch") -> dict[str, Any]:
    return {"cursor": {batch: [{"a": 1}], "id": Int64(cursor_id), "ns": BUCKETS}, "ok": 1.0}
