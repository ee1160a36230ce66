"""Legacy opcodes: drivers still begin their handshake with OP_QUERY."""

from __future__ import annotations

from typing import Final

from catalog.errors import CommandError
from proxy.request.attempt import Replied
from proxy.request.command import Command, parse_legacy_command
from proxy.request.command_table import LEGACY_COMMANDS
from proxy.request.exchange import Exchange, encode
from proxy.wire import op_query

_MORE_DETAILS: Final = (
    "is no longer supported. The client driver may require an upgrade. "
    "For more details see https://dochub.mongodb.org/core/legacy-opcode-removal"
)


def refuse_legacy(exchange: Exchange, opcode: str) -> None:
    """Reply that this opcode is no longer supported."""
    text = f"{opcode} {_MORE_DETAILS}"
    document = encode({"$err": text, "code": op_query.LEGACY_OPCODE, "ok": 0.0})
    raw = op_query.build_reply(1, exchange.message.request_id, document, op_query.QUERY_FAILURE)
    exchange.end(Replied(document, raw))


def legacy_command(exchange: Exchange) -> Command | None:
    """The command of an OP_QUERY; ``None`` if it has been refused. Raises ``CommandError``."""
    query = op_query.parse(exchange.message)
    database = query.database
    if database is None:
        refuse_legacy(exchange, "OP_QUERY")
        return None
    if query.number_to_return not in (1, -1):
        raise CommandError(
            16979, f"Bad numberToReturn ({query.number_to_return}) for $cmd type ns - can only be 1 or -1"
        )
    command = parse_legacy_command(exchange.message, database, query.command)
    if command.name not in LEGACY_COMMANDS:
        raise CommandError(
            352,
            f"Unsupported OP_QUERY command: {command.name}. The client driver may require an "
            "upgrade. For more details see https://dochub.mongodb.org/core/legacy-opcode-removal",
        )
    return command
