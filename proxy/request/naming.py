"""What a command is called: its name, its database, its namespace, the number of its statements."""

from __future__ import annotations

from typing import Final

from catalog.bson.raw import ARRAY, STRING, MalformedBSON
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.request.command import Command
from proxy.request.exchange import Exchange
from proxy.request.recognition import DATABASE, body_end
from proxy.request.slow_reply import count_of
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Opcode, length_at
from proxy.wire.op_msg import BODY_AT

LONGEST_TEXT: Final = 256
"""Characters of a name or comment."""
_STATEMENTS: Final = (b"documents", b"updates", b"deletes")
_NAME_AT: Final = BODY_AT + 5
_MSG: Final = int(Opcode.MSG)


def printable(text: str) -> str:
    """``text`` on one line, and not too long."""
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    return shown if shown.isprintable() else "".join(map(_escaped, shown))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def name_of(exchange: Exchange) -> str:
    """The name of the command, without parsing it if its body comes first; ``""`` if it is not a valid one.

    A longer name than ``LONGEST_TEXT``, which no server accepts, may be cut.
    """
    if exchange.command is not None:
        return exchange.command.name
    raw, end = exchange.message.raw, _body_end(exchange)
    if end:
        return raw[_NAME_AT : min(end, _NAME_AT + LONGEST_TEXT)].partition(b"\0")[0].decode(errors="replace")
    command = parsed_or_none(exchange)
    return "" if command is None else command.name


def database_of(exchange: Exchange) -> str:
    """The database of the command, without parsing it if possible; ``""`` if it is not a valid one."""
    if exchange.command is not None:
        return exchange.command.namespace.database
    raw, end = exchange.message.raw, _body_end(exchange)
    at = raw.find(DATABASE, BODY_AT, end) if end else -1
    if at >= 0 and at + 9 <= end and raw.find(DATABASE, at + 5, end) < 0:
        # There is no other, so this is the field itself.
        return raw[at + 9 : at + 8 + length_at(raw, at + 5)].decode(errors="replace")
    command = parsed_or_none(exchange)
    return "" if command is None else command.namespace.database


def names_in(head: bytes) -> tuple[str, str]:
    """The collection and the database in what ``recognition.head_of`` returns."""
    # Two elements: each a type, a name that ends with a zero, a length, and a text with a zero.
    _, _, value = head.partition(b"\0")
    size = length_at(value, 0)
    database_at = 4 + size + len(DATABASE) + 4
    return value[4 : 3 + size].decode(errors="replace"), value[database_at:-1].decode(errors="replace")


def _body_end(exchange: Exchange) -> int:
    """As ``body_end``; also 0 if the message is no OP_MSG."""
    message = exchange.message
    return body_end(message.raw) if message.opcode == _MSG else 0


def parsed_or_none(exchange: Exchange) -> Command | None:
    """The command; ``None`` if it is not a valid one."""
    try:
        return exchange.parsed()
    except (CommandError, ProtocolError):
        return None


def namespace_of(command: Command) -> Namespace:
    """The namespace of the command; of a ``getMore``, that of its cursor as the client names it."""
    if command.name != "getMore":
        return command.namespace
    kind, start, end = command.fields.get(b"collection", (0, 0, 0))
    collection = command.body[start + 4 : end - 1].decode(errors="replace") if kind == STRING else ""
    return Namespace(command.namespace.database, collection)


def documents_in(command: Command) -> int | None:
    """The statements of a write; ``None`` if it has none, or their number is not known."""
    for identifier, documents in command.sequences:
        if identifier.encode() in _STATEMENTS:
            return len(documents)
    for name in _STATEMENTS:
        kind, start, end = command.fields.get(name, (0, 0, 0))
        if kind == ARRAY:
            try:
                return count_of(command.body, start, end)
            except MalformedBSON:
                return None
    return None
