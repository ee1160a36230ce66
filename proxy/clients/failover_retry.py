"""Retries rewritten commands, and reads from a chosen member, if their server becomes unavailable.

``proxy.relay.handler`` handles commands that are relayed to the primary.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.errors import BackendUnavailable
from proxy.members.read_preference import Members
from proxy.reads.cursors import CURSOR_NOT_FOUND, error_code
from proxy.relay.failover import Failover, Way
from proxy.relay.handler import may_be_sent_again
from proxy.request.command import Command
from proxy.request.exchange import Exchange
from proxy.upstream.connection import UpstreamLost
from proxy.upstream.not_primary import not_primary


class FailoverRetry:
    """Sends such a command to the next server, if it may be sent again."""

    def __init__(
        self, failover: Failover | None, members: Members | None, begin: Callable[[Exchange, Command], None]
    ) -> None:
        """``begin`` starts a command again; the other arguments are ``None`` without a replica set."""
        self._failover = failover
        self._members = members
        self._begin = begin

    def takes(self, exchange: Exchange, command: Command, outcome: bytes | Exception) -> bool:
        """Whether this reply or error means that another server should be tried."""
        if self._failover is None:
            return False
        if command.name == "getMore" and isinstance(outcome, bytes) and self.may_be_retried(command):
            return error_code(outcome) == CURSOR_NOT_FOUND
        if not may_be_sent_again(command):
            return False
        if isinstance(outcome, bytes):
            return not_primary(outcome) is not None
        # Connecting to the primary is retried before this error is raised; connecting to another member is not.
        return isinstance(outcome, UpstreamLost if exchange.session.member is None else BackendUnavailable)

    def may_be_retried(self, command: Command) -> bool:
        """Whether the cursor of this command may be on the previous primary."""
        is_continued = command.name == "getMore" and not command.exhaust_allowed
        return is_continued and self._members is not None and self._members.has_formers

    async def go(self, exchange: Exchange, command: Command, otherwise: Callable[[], None]) -> None:
        """Start again, or disconnect a client that must log in again; ``otherwise`` sends the error if it cannot."""
        assert self._failover is not None
        session = exchange.session
        if command.name == "getMore":
            if self._members is None or not self._members.seek_cursor(session, command):
                otherwise()
                return
            exchange.session = session.home or session
        elif session.home is not None and self._members is not None:
            self._members.avoid(session)
            exchange.session = session.home
        else:
            match await self._failover.way_on(session):
                case Way.STAYS:
                    otherwise()
                    return
                case Way.ANEW:
                    exchange.come_again()
                    return
                case Way.AGAIN:
                    pass
        leave, exchange.on_leave = exchange.on_leave, None
        if leave is not None:
            leave()
        self._begin(exchange, command)
