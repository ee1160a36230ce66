"""Exchanges and connections for tests of admin commands, without sockets."""

from __future__ import annotations

from typing import Any

from proxy.admin.arguments import Call, call_of
from proxy.admin.table import COMMANDS
from proxy.request.attempt import Outcome, Unexpected
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command, document_of
from tests.support.sessions import session


class Started(Told):
    """Remembers which exchanges were started after they had been held; bugs end them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[Exchange] = []

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        super().ended(exchange, outcome)
        if isinstance(outcome, Unexpected):
            exchange.close()

    def go_on(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


class Asking:
    """A client with one command after the other."""

    def __init__(self, of: Session | None = None) -> None:
        self.session = of or session()
        self.client = FakeClient()
        self.started = Started()

    def exchange(self, document: dict[str, Any] | bytes) -> Exchange:
        raw = document if isinstance(document, bytes) else command({**document, "$db": document.get("$db", "admin")})
        return Exchange(self.session, self.client, Message.from_bytes(raw), self.started)

    def call(self, name: str, **fields: Any) -> Call:
        exchange = self.exchange({"tsproxy": name, **fields})
        return call_of(exchange, exchange.parsed(), COMMANDS)

    @property
    def replies(self) -> list[dict[str, Any]]:
        return [document_of(Message.from_bytes(raw)) for raw in self.client.written]


class FakeConnection:
    """A client connection as admin commands see it."""

    def __init__(self, asking: Asking, exchange: Exchange | None = None, *, is_busy: bool = False) -> None:
        self.session: Session | None = asking.session
        self.exchange = exchange
        self.is_busy = is_busy or exchange is not None
        self.active_at_seconds = 0.0
        self.address = "203.0.113.9:5"
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True
