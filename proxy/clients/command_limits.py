"""Limits the commands at once of each user and database.

A command takes a place of its user, then one of its database, and keeps them until it ends. If there is none, it waits
in fair turns: those of a user by address, those of a database by user and address. So a user at its limit has at most
as many places of a database as it may run commands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from catalog.bson.raw import BOOL
from catalog.errors import CommandError
from proxy.clients.measuring import Measuring
from proxy.request.attempt import Refused
from proxy.request.command_table import NEVER_WAITS
from proxy.request.exchange import Exchange
from proxy.request.limited import LimitBook, Limited, QueuedCommand, overloaded
from proxy.request.naming import database_of, name_of
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Opcode

_MSG: Final = int(Opcode.MSG)
_AUTOCOMMIT: Final = b"autocommit\0"

StartLate = Callable[[Exchange], None]


class Place:
    """The places of one command: those that it has, and those that it still needs."""

    __slots__ = ("_exchange", "_go_on", "_measuring", "_needed", "_taken", "_waits")

    def __init__(self, exchange: Exchange, needed: list[Limited], go_on: StartLate, measuring: Measuring) -> None:
        self._exchange = exchange
        self._needed = needed
        self._taken: list[Limited] = []
        self._go_on = go_on
        self._measuring = measuring
        self._waits = False

    def take(self) -> bool:
        """Take the places that are free; false if the command has to wait, and is continued or refused later."""
        while self._needed:
            limited = self._needed[0]
            if not limited.take():
                self._waits = True
                owner = self._exchange.session.owner
                limited.wait_for_place(owner, QueuedCommand(self._exchange, 1, self._has_next, self._refuse))
                return False
            self._has_taken()
        return True

    def occupy(self) -> None:
        """Take all places, also above the limits."""
        while self._needed:
            self._needed[0].occupy()
            self._has_taken()

    def leave(self) -> None:
        """Give all places back."""
        taken, self._taken, self._needed = self._taken, [], []
        for limited in taken:
            limited.give_back()

    def _has_taken(self) -> None:
        self._taken.append(self._needed.pop(0))

    def _has_next(self) -> None:
        self._has_taken()
        if self.take():
            try:
                self._go_on(self._exchange)
            except ProtocolError:
                self._exchange.close()

    def _refuse(self) -> None:
        exchange, limited = self._exchange, self._needed[0]
        limited.counts.refused["commands"] += 1
        limits = limited.limits
        try:
            self._measuring.begin(exchange, exchange.parsed(), "refuse")
        except ProtocolError:
            exchange.close()
            return
        except CommandError as error:
            exchange.end(Refused(error))
            return
        reason = (
            f"limit of {limits.max_commands} concurrent commands reached for {limited.kind} {limited.name} "
            f"({limited.kind}_limits); timed out waiting"
        )
        exchange.end(Refused(overloaded(reason)))


class CommandLimits:
    """Decides for each command whether it may start."""

    def __init__(self, book: LimitBook, measuring: Measuring) -> None:
        self._book = book
        self._measuring = measuring

    def admits(self, exchange: Exchange, go_on: StartLate) -> bool:
        """Whether the command may start now; otherwise ``go_on`` is called later, or it is refused."""
        book, raw = self._book, exchange.message.raw
        if exchange.message.opcode != _MSG:
            return True
        name = name_of(exchange)
        if not name or name in NEVER_WAITS:
            # One without a name is reported elsewhere.
            return True
        needed = []
        user = book.user(exchange.session.identity)
        if user is not None:
            needed.append(user)
        if book.limits_databases:
            name = database_of(exchange)
            database = book.database(name) if name else None
            if database is not None:
                needed.append(database)
        if not needed:
            return True
        place = exchange.place = Place(exchange, needed, go_on, self._measuring)
        if _AUTOCOMMIT in raw and _continues_transaction(exchange):
            # It may hold locks for which commands with a place wait.
            place.occupy()
            return True
        return place.take()


def _continues_transaction(exchange: Exchange) -> bool:
    try:
        command = exchange.parsed()
    except (CommandError, ProtocolError):
        return False
    kind, start, end = command.fields.get(b"startTransaction", (0, 0, 0))
    starts = kind == BOOL and any(command.body[start:end])
    return command.in_transaction and not starts
