"""Shortcuts for relayed commands, which are relayed without parsing if an earlier one was relayed.

On an ordinary collection, this applies to every command with the same name, collection and database; the backend checks
the rest of the message. A ``ping`` has no collection, so its whole body must be the same.
"""

from __future__ import annotations

from typing import Final

from proxy.request import router
from proxy.request.command import STARTS_TRANSACTION, Command
from proxy.request.command_table import ENDS_TRANSACTION, REDEFINES, TABLE, Target, Way
from proxy.request.exchange import Exchange
from proxy.request.needs import PREFERENCE
from proxy.request.recognition import LONGEST_BYTES, Form, Recognised, Shortcut
from proxy.wire.op_msg import BODY_AT

_WEIGHT_BYTES: Final = 600
_SEEN: Final = REDEFINES | ENDS_TRANSACTION
"""Commands whose reply the proxy may have to see."""


class PlainRelay(Shortcut):
    """Relays a message unchanged."""

    __slots__ = ("_avoid",)

    def __init__(self, avoid: tuple[bytes, ...], *, by_head: bool) -> None:
        """A message that contains any of ``avoid`` is not handled."""
        super().__init__(_WEIGHT_BYTES, by_head=by_head)
        self._avoid = avoid

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        raw = exchange.message.raw
        if raw.find(STARTS_TRANSACTION, BODY_AT, end) >= 0:
            # It is recorded that the transaction is open.
            return False
        for each in self._avoid:
            # ``in`` would first try whether ``each`` is a number, by an exception.
            if raw.find(each) >= 0:
                return False
        return known.send(exchange, raw, exchange)


def plain_relay(command: Command, route: router.Relay, *, has_members: bool) -> PlainRelay | None:
    """The shortcut for commands like ``command``, which took this route; ``None`` if there can be none.

    ``has_members``: reads with a read preference may go to another member.
    """
    row, raw = TABLE.get(command.name), command.message.raw
    if route is not router.RELAY or row is None or command.name in _SEEN or len(raw) > LONGEST_BYTES:
        return None
    if row.target is Target.DATABASE and row.way is Way.RELAY:
        return PlainRelay((), by_head=False)
    if row.target is not Target.FIRST:
        return None
    avoid = (*((row.endless,) if row.endless else ()), *((PREFERENCE + b"\0",) if has_members else ()))
    return None if any(each in raw for each in avoid) else PlainRelay(avoid, by_head=True)
