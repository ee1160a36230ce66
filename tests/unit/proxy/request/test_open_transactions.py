"""The record of open transactions (W102)."""

from __future__ import annotations

from catalog.identity import NOBODY
from proxy.request.open_transactions import MOST_TRANSACTIONS, OpenTransactions

SESSION = (b"session", NOBODY)


def test_the_latest_transaction_of_a_session_is_known_until_it_ends() -> None:
    transactions = OpenTransactions()
    transactions.begun(SESSION, 1)
    transactions.begun(SESSION, 2)
    transactions.ended(SESSION, 1)
    assert transactions.numbers == {SESSION: 2}
    transactions.ended(SESSION, 2)
    transactions.ended(SESSION, 2)
    assert not transactions.numbers


def test_there_is_a_limit() -> None:
    transactions = OpenTransactions()
    for number in range(MOST_TRANSACTIONS + 1):
        transactions.begun((b"%d" % number, NOBODY), 1)
    assert len(transactions.numbers) == MOST_TRANSACTIONS
    assert (b"0", NOBODY) not in transactions.numbers
