"""The handler of each kind of route: what the dispatcher calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from proxy.hello.handler import HelloHandler
from proxy.inserts.insert_port import InsertPort
from proxy.members.read_preference import MemberSelector
from proxy.reads.inline_reads import InlineReads
from proxy.relay.failover import Failover
from proxy.relay.handler import RelayHandler
from proxy.request.attempt import Outcome, Replied, Streamed
from proxy.request.command import STARTS_TRANSACTION, Command
from proxy.request.exchange import Exchange
from proxy.request.ports import Gate, Translator
from proxy.request.recognition import Memory, memory
from proxy.request.session import Session


class Gatekeeper(Protocol):
    """Keeps commands from starting (``proxy.admin.pause``)."""

    def holds(self, exchange: Exchange) -> bool:
        """Whether the command must not start now: ``Dispatcher.go_on`` starts it later, or it has ended already."""
        ...


class AdminCommands(Protocol):
    """Executes admin commands (``proxy.admin.handler``)."""

    def start(self, exchange: Exchange) -> None:
        """Start one; raises nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handler of each kind of route, the ``gate`` that checks rights, and the ``memory`` of recognised commands."""

    relay: RelayHandler
    answer: HelloHandler
    ingest: InsertPort | None
    translate: Translator
    gate: Gate
    members: MemberSelector | None = None
    inline_reads: InlineReads | None = None
    failover: Failover | None = None
    memory: Memory = field(default_factory=memory)
    admin: AdminCommands | None = None

    def notice(self, exchange: Exchange, command: Command) -> None:
        """Record that a transaction begins, if the command begins one."""
        if STARTS_TRANSACTION in command.fields:
            self.relay.transaction_begins(exchange, command)

    def record_cursor(self, session: Session, outcome: Outcome) -> None:
        """Record the cursor that a reply of another member leaves open there."""
        if session.member is None or self.members is None:
            return
        if isinstance(outcome, Replied | Streamed) and outcome.document is not None:
            self.members.record_cursor(session, outcome.document)
