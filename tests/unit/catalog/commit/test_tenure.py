"""What processes know of a session besides its statements (W102)."""

from __future__ import annotations

import math

from catalog.commit.statements import StatementLog
from catalog.commit.tenure import Search, SessionKey, Tenure
from catalog.identity import NOBODY

CLIENT: SessionKey = (b"s", NOBODY)


def test_w102_a_client_begins_a_number_after_it_has_sent_those_before() -> None:
    first, second, third = (Tenure(CLIENT, 0) for _ in range(3))
    first.sent_seconds = 5.0
    second.follow(first)
    assert (second.begun_seconds, second.sent_seconds) == (5.0, -math.inf)
    # It came over another connection, of which nothing is known.
    third.follow(second)
    assert third.begun_seconds == 5.0


def test_w102_when_a_number_was_begun_is_known_before_it_is_recorded() -> None:
    log = StatementLog()
    assert log.begun_seconds(CLIENT, 1) == -math.inf
    log.transaction(CLIENT, 1).take(1.0, Search.NONE, 5.0)
    log.transaction(CLIENT, 1).take(2.0, Search.NONE, 4.0)
    assert [log.begun_seconds(CLIENT, number) for number in (0, 1, 2)] == [-math.inf, -math.inf, 5.0]
    log.transaction(CLIENT, 3).take(3.0, Search.NONE, 7.0)
    assert [log.begun_seconds(CLIENT, number) for number in (2, 3, 4)] == [-math.inf, 5.0, 7.0]


def test_w102_a_statement_that_may_have_been_executed_stays_so() -> None:
    transaction = StatementLog().transaction(CLIENT, 1)
    assert transaction.may_be_relayed
    transaction.take(1.0, Search.FENCED)
    assert not transaction.may_be_relayed
    assert not transaction.is_sought
    transaction.take(1.0, Search.NONE)
    assert not transaction.may_be_relayed
    transaction.learn([], [], is_native=False, is_sought=True)
    assert transaction.is_sought
    transaction.take(1.0, Search.FENCED)
    assert transaction.is_sought
