"""The transactions that clients have open at the backend, by session.

A server ends the open transaction of a session when the session begins a retryable write with a newer number. It does
not see the inserts that the proxy executes itself, so these must know. What is recorded may be out of date: a
transaction may have ended by its time limit, or through another process.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from catalog.bounded import remember
from catalog.identity import Identity

MOST_TRANSACTIONS: Final = 10_000
"""Limit of the record; those that have begun first are removed first."""


class OpenTransactions:
    """The numbers of transactions that have begun, and are not known to have ended."""

    def __init__(self) -> None:
        self.numbers: OrderedDict[tuple[bytes, Identity], int] = OrderedDict()
        """By session: its raw ``lsid`` and its users."""

    def begun(self, session: tuple[bytes, Identity], number: int) -> None:
        """A session begins a transaction."""
        remember(self.numbers, session, number, MOST_TRANSACTIONS)

    def ended(self, session: tuple[bytes, Identity], number: int) -> None:
        """A transaction has ended, or is about to."""
        if self.numbers.get(session) == number:
            del self.numbers[session]
