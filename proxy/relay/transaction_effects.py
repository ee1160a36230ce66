"""Holds the effects of commands in transactions until the commit.

A transaction belongs to a session, not to a connection: drivers may send its commands over several. So the effects of
all clients are kept together. Their number is bounded; above it, effects apply at once, which only drops a few buckets
from memory too early.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, TypeAlias

from proxy.request.command import Command
from proxy.request.command_table import ENDS_TRANSACTION
from proxy.request.ports import Effects
from rewrite.plan import Effect

MOST_TRANSACTIONS: Final = 1_024
MOST_EFFECTS: Final = 64
LONGEST_SESSION_BYTES: Final = 256
"""Maximum length of a session's id; servers accept no longer ones."""

_Key: TypeAlias = tuple[Hashable, bytes, bytes]


class TransactionEffects:
    """The effects of running transactions."""

    def __init__(self, take: Effects) -> None:
        self._take = take
        self._held: OrderedDict[_Key, dict[Effect, None]] = OrderedDict()

    def concerns(self, command: Command | None) -> bool:
        """Whether the command may end a transaction with effects."""
        return bool(self._held) and command is not None and command.name in ENDS_TRANSACTION

    def hold(self, command: Command, identity: Hashable, effects: tuple[Effect, ...]) -> None:
        """Hold the effects of ``command``, which was executed in a transaction of this user."""
        key = _key(command, identity)
        if len(key[1]) > LONGEST_SESSION_BYTES:
            self._carry_out(effects)
            return
        held = self._held.setdefault(key, {})
        held.update(dict.fromkeys(effects))
        if len(held) > MOST_EFFECTS:
            self._carry_out(tuple(self._held.pop(key)))
        if len(self._held) > MOST_TRANSACTIONS:
            _, oldest = self._held.popitem(last=False)
            self._carry_out(tuple(oldest))

    def ended(self, command: Command, identity: Hashable, *, changed: bool) -> None:
        """``command`` has ended the transaction; ``changed``: it was committed, or may have been."""
        held = self._held.pop(_key(command, identity), {})
        if changed and command.name == "commitTransaction":
            self._carry_out(tuple(held))

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            self._take(effect)


def _key(command: Command, identity: Hashable) -> _Key:
    return identity, command.raw(b"lsid"), command.raw(b"txnNumber")
