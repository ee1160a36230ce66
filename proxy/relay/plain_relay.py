"""Commands that are relayed without being parsed, because an earlier one tells that they go this way.

On an ordinary collection that is every command with the same name, collection and database; the rest of the message is
the backend's to judge. A ``ping`` has no collection, so it has to be the same as a whole.
"""

from __future__ import annotations

from typing import Final

from proxy.request import router
from proxy.request.command import Command
from proxy.request.command_table import REDEFINES, TABLE, Target, Way
from proxy.request.exchange import Exchange
from proxy.request.needs import PREFERENCE
from proxy.request.recognition import LONGEST_BYTES, Form, Recognised, Shortcut

_WEIGHT_BYTES: Final = 600
_NEVER_ENDS: Final = {"aggregate": b"$changeStream\0", "find": b"tailable\0"}
"""What makes the reply of a reading command one that never ends (``proxy.readers.register``)."""


class PlainRelay(Shortcut):
    """Relays a message as it came."""

    __slots__ = ("_avoid",)

    def __init__(self, avoid: tuple[bytes, ...], *, by_head: bool) -> None:
        """A message with any of ``avoid`` in it is another case."""
        super().__init__(_WEIGHT_BYTES, by_head=by_head)
        self._avoid = avoid

    def start(self, exchange: Exchange, known: Recognised, form: Form, end: int) -> bool:
        """See ``Shortcut``."""
        raw = exchange.message.raw
        for each in self._avoid:
            if each in raw:
                return False
        return known.send(exchange, raw, exchange)


def plain_relay(command: Command, route: router.Relay, *, has_members: bool) -> PlainRelay | None:
    """What relays ``command``, which took this route, and others like it; ``None`` if none may be like it.

    ``has_members``: reads with a read preference may go elsewhere.
    """
    row, raw = TABLE.get(command.name), command.message.raw
    if route is not router.RELAY or row is None or command.name in REDEFINES or len(raw) > LONGEST_BYTES:
        return None
    if row.target is Target.DATABASE and row.way is Way.RELAY:
        return PlainRelay((), by_head=False)
    if row.target is not Target.FIRST:
        return None
    never_ends = _NEVER_ENDS.get(command.name)
    avoid = (*(() if never_ends is None else (never_ends,)), *((PREFERENCE + b"\0",) if has_members else ()))
    return None if any(each in raw for each in avoid) else PlainRelay(avoid, by_head=True)
