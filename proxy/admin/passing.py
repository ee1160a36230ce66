"""Which commands start although clients are paused: a table, and the name of a command without parsing it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from catalog.errors import CommandError
from proxy.request.command import Command, parse_legacy_command
from proxy.request.command_table import ADMIN, CHANGES_IDENTITY, GREETS, SENT_WHEN_CONNECTING, TABLE, Target
from proxy.request.exchange import Exchange
from proxy.request.naming import name_of, names_in
from proxy.request.recognition import body_end, head_of
from proxy.wire import op_query
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Opcode

_CARRIED: Final = (b"speculativeAuthenticate", b"saslSupportedMechs")

LONGEST_NAME: Final = 128
LONGEST_COLLECTION: Final = 256
"""Longer names, which no server accepts, are cut."""


class Passage(Enum):
    """What becomes of a command while clients are paused."""

    FREE = auto()
    """It starts: it needs no backend."""
    LOGIN = auto()
    """It starts when the backend answers."""
    OWN = auto()
    """It starts if the backend answers; otherwise it fails at once, which its sender expects."""
    HELD = auto()
    """It waits."""


def command_of(exchange: Exchange) -> Command | None:
    """The command of a message; ``None`` if it cannot be parsed, which the dispatcher reports."""
    message = exchange.message
    try:
        if message.opcode == Opcode.MSG:
            return exchange.parsed()
        if message.opcode == Opcode.QUERY:
            query = op_query.parse(message)
            return parse_legacy_command(message, query.database or "", query.command)
    except (CommandError, ProtocolError):
        return None
    return None


def passage_of(command: Command | None) -> Passage:
    """The passage of a command."""
    if command is None or command.name == ADMIN:
        return Passage.FREE
    name = command.name
    if name in GREETS:
        return Passage.LOGIN if any(field in command.fields for field in _CARRIED) else Passage.FREE
    if name in CHANGES_IDENTITY:
        return Passage.LOGIN
    return Passage.OWN if name in SENT_WHEN_CONNECTING else Passage.HELD


def name_and_namespace(exchange: Exchange) -> tuple[str, str]:
    """The name of a command and the namespace that it is about, without its values; ``""`` if they are not known.

    A recognised command was not parsed, and is not parsed for this.
    """
    if exchange.command is None and exchange.message.opcode != Opcode.MSG:
        return "", ""
    name, command = name_of(exchange)[:LONGEST_NAME], exchange.command
    if command is not None:
        return name, _shown(name, *command.namespace)
    raw = exchange.message.raw
    head = head_of(raw, body_end(raw)) if name else None
    if head is None:
        return name, ""
    collection, database = names_in(head)
    return name, _shown(name, database, collection)


def _shown(name: str, database: str, collection: str) -> str:
    row = TABLE.get(name)
    has_name = collection and (row is None or row.target is not Target.DATABASE)
    return f"{database}.{collection[:LONGEST_COLLECTION]}" if has_name else database
