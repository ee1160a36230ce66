"""What recognises commands, in front of a connection that remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson

from catalog.namespaces import Namespace, VirtualCollection
from proxy.readers.register import ReaderRegister
from proxy.request import router
from proxy.request.command import Command, parse_command
from proxy.request.exchange import Exchange
from proxy.request.needs import Requirements
from proxy.request.recognition import Recogniser, Shortcut, memory
from proxy.request.router import Unresolved
from proxy.request.session import Session
from proxy.upstream.connection import UpstreamConnection
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient, FakeTransport
from tests.support.raw_wire import document_of
from tests.support.sessions import session


class Recognising:
    """A recogniser, with all that it asks; it counts as the meter of what it learns."""

    def __init__(self, *, has_members: bool = False, limit_bytes: int = 1 << 20) -> None:
        self.found: VirtualCollection | Unresolved | None = None
        self.allowed: bool | None = True
        self.stranger = False
        self.counted: list[bool] = []
        self.told = Told()
        self.register = ReaderRegister(lambda _: False)
        self.memory = memory(limit_bytes)
        self.requirements = Requirements(lambda _: self.found, self, self.register, has_members=has_members)
        self.recogniser = Recogniser(self.memory, self.requirements)
        self.session = session()
        self.transport = FakeTransport()
        self.connection = UpstreamConnection("backend:1", lambda: None, lambda _: None)
        self.connection.connection_made(self.transport)
        self.session.upstream._connection = self.connection
        self.client = FakeClient()

    def done(self, seconds: float, code: int = 0) -> None:
        self.counted.append(bool(code))

    def must_log_in(self, session: Session) -> bool:
        return self.stranger

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        return self.allowed

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        raise AssertionError

    def remember(self, raw: bytes, route: router.Route, shortcut: Shortcut | None) -> Command:
        """What ``raw`` asks for took this route."""
        command = parse_command(Message.from_bytes(raw))
        self.recogniser.remember(command, self.requirements.of(command, route), self, shortcut)
        return command

    def exchange(self, raw: bytes) -> Exchange:
        self.client = FakeClient()
        return Exchange(self.session, self.client, Message.from_bytes(raw), self.told)

    def recognises(self, raw: bytes) -> Exchange | None:
        exchange = self.exchange(raw)
        return exchange if self.recogniser.start(exchange) else None

    @property
    def readers(self) -> Mapping[str, int]:
        """How many commands read each database at the moment."""
        return self.register.active._reading._numbers

    def keep_out(self, database: str) -> None:
        """From now on readers have to wait for a join."""
        self.register.active._kept_out[database] = object()  # type: ignore[assignment]

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [document_of(Message.from_bytes(raw)) for raw in self.transport.written]

    def answer(self, document: dict[str, Any], size: int = 1_000_000) -> dict[str, Any] | None:
        raw = op_msg.build(5, 6, bson.encode(document))
        for start in range(0, len(raw), size):
            self.connection.data_received(raw[start : start + size])
        return document_of(Message.from_bytes(self.client.written.pop())) if self.client.written else None
