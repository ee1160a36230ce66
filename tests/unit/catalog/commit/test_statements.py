"""The record of retryable statements (W102, W127)."""

from __future__ import annotations

import math

import pytest

from catalog.commit.statements import RUN_BYTES, SESSION_BYTES, Statement, StatementLog
from catalog.commit.tenure import Search
from catalog.errors import CommandError
from catalog.identity import NOBODY
from catalog.ports import Acknowledgement
from tests.support.catalog_parts import ACKNOWLEDGED, Later, RememberingWriter

LOST = CommandError(6, "the outcome is unknown")


def test_all_who_ask_hear_the_outcome_under_their_own_index() -> None:
    """W102"""
    transaction = StatementLog().transaction((b"s", NOBODY), 1)
    statement = Statement(transaction, 4)
    first, again = RememberingWriter(), RememberingWriter()
    statement.wait(first, 4, 30)
    statement.wait(again, 9, 60)
    assert transaction.under_way == {4: statement}
    statement.settle((0,), None, ACKNOWLEDGED)
    assert first.codes == {4: None}
    assert again.codes == {9: None}
    assert 4 in transaction.written
    assert transaction.under_way == {}


def test_what_failed_may_be_sent_again() -> None:
    """W102"""
    transaction = StatementLog().transaction((b"s", NOBODY), 1)
    statement = Statement(transaction, 0)
    statement.settle((0,), CommandError(121, "refused"), None)
    assert 0 not in transaction.written
    assert 0 not in transaction.lost
    assert transaction.under_way == {}


def test_doubt_is_told_at_each_ones_own_deadline_and_the_verdict_to_those_who_still_wait() -> None:
    """W127"""
    transaction = StatementLog().transaction((b"s", NOBODY), 1)
    statement = Statement(transaction, 0)
    early, late = RememberingWriter(), RememberingWriter()
    statement.wait(early, 0, 30)
    statement.wait(late, 0, 60)
    assert statement.doubt((0,), LOST, 30) is statement
    assert early.codes == {0: 6}
    assert late.codes == {}
    assert statement.is_wanted
    statement.expire(59, LOST)
    assert late.codes == {}
    statement.settle((0,), None, ACKNOWLEDGED)
    assert late.codes == {0: None}
    assert 0 in transaction.written


def test_statement_without_waiters_is_wanted_by_nobody() -> None:
    statement = Statement(StatementLog().transaction((b"s", NOBODY), 1), 0)
    statement.wait(RememberingWriter(), 0, 30)
    statement.expire(30, LOST)
    assert not statement.is_wanted


def test_lost_statement_is_not_written_again() -> None:
    """W127: refused rather than doubled."""
    transaction = StatementLog().transaction((b"s", NOBODY), 1)
    statement = Statement(transaction, 3)
    writer = RememberingWriter()
    statement.wait(writer, 0, 30)
    statement.lose(LOST)
    assert writer.codes == {0: 6}
    assert 3 in transaction.lost
    assert 3 not in transaction.written


def test_retry_does_not_hear_better_than_the_first_answer() -> None:
    """W104: an unmet write concern stays unmet in the record."""
    transaction = StatementLog().transaction((b"s", NOBODY), 1)
    unmet = Acknowledgement({"code": 64})
    Statement(transaction, 0).settle((0,), None, ACKNOWLEDGED)
    assert transaction.unmet_write_concern is None
    Statement(transaction, 1).settle((0,), None, unmet)
    assert transaction.unmet_write_concern is unmet


def test_what_another_primary_may_not_have_is_looked_up() -> None:
    """W104: whether a new primary has what the old one had stored, only its buckets tell."""
    log, waited = StatementLog(), Later()
    transaction = log.transaction((b"s", NOBODY), 1)
    size_bytes = log.size_bytes
    for number in (1, 2, 5):
        Statement(transaction, number).settle((0,), None, Acknowledgement(confirmation=waited))
    assert len(waited.waiting) == 1
    assert not waited.is_gone()
    assert not transaction.is_sought
    waited.tell(LOST)
    assert transaction.is_sought
    assert [number for number in range(9) if number in transaction.written] == []
    assert transaction.unmet_write_concern is None
    assert log.size_bytes == size_bytes
    log.transaction((b"s", NOBODY), 2)
    assert waited.is_gone()


def test_what_was_found_once_is_not_looked_up_again() -> None:
    """W102: a row that was found for a statement does not count for another; better an error than two rows."""
    transaction, waited = StatementLog().transaction((b"s", NOBODY), 1), Later()
    unmet = Acknowledgement(confirmation=waited)
    Statement(transaction, 1).found(unmet)
    waited.tell(LOST)
    assert 1 in transaction.written
    assert transaction.unmet_write_concern is unmet


def test_what_has_no_id_cannot_be_looked_up_and_is_lost() -> None:
    """W102: better an error than two rows."""
    transaction, waited = StatementLog().transaction((b"s", NOBODY), 1), Later()
    for number in (1, 2):
        Statement(transaction, number, has_id=number == 1).settle((0,), None, Acknowledgement(confirmation=waited))
    waited.tell(LOST)
    assert (1 in transaction.written, 1 in transaction.lost) == (False, False)
    assert (2 in transaction.written, 2 in transaction.lost) == (False, True)


def test_a_write_concern_that_was_met_late_changes_nothing() -> None:
    transaction, waited = StatementLog().transaction((b"s", NOBODY), 1), Later()
    Statement(transaction, 1).settle((0,), None, Acknowledgement(confirmation=waited))
    waited.tell(ACKNOWLEDGED)
    assert 1 in transaction.written
    assert not transaction.is_sought
    assert transaction.unmet_write_concern is None


def test_newer_transaction_replaces_and_older_is_too_old() -> None:
    """W102"""
    log = StatementLog()
    first = log.transaction((b"s", NOBODY), 5)
    assert not first.follows_another
    assert log.transaction((b"s", NOBODY), 5) is first
    second = log.transaction((b"s", NOBODY), 6)
    assert second is not first
    assert second.follows_another
    with pytest.raises(CommandError) as refused:
        log.transaction((b"s", NOBODY), 5)
    assert refused.value.code == 225
    with pytest.raises(CommandError) as refused:
        log.transaction((b"another", NOBODY), -1)
    assert refused.value.code == 72


def test_statement_of_a_replaced_transaction_still_answers() -> None:
    log = StatementLog()
    statement = Statement(log.transaction((b"s", NOBODY), 1), 0)
    writer = RememberingWriter()
    statement.wait(writer, 0, 30)
    log.transaction((b"s", NOBODY), 2)
    statement.settle((0,), None, ACKNOWLEDGED)
    assert writer.codes == {0: None}


def test_sessions_are_bounded_and_the_longest_silent_goes() -> None:
    log = StatementLog(limit_bytes=2 * SESSION_BYTES)
    first = log.transaction((b"1", NOBODY), 1)
    log.transaction((b"2", NOBODY), 1)
    assert log.transaction((b"1", NOBODY), 1) is first
    log.transaction((b"3", NOBODY), 1)
    assert len(log) == 2
    assert log.transaction((b"1", NOBODY), 1) is first
    assert not log.transaction((b"2", NOBODY), 1).follows_another


def test_sessions_with_scattered_statements_weigh_more() -> None:
    """Of a command whose every other document fails, nothing is one run."""
    log = StatementLog(limit_bytes=3 * SESSION_BYTES + 100 * RUN_BYTES)
    for session in (b"1", b"2", b"3"):
        log.transaction((session, NOBODY), 1)
    scattered = log.transaction((b"3", NOBODY), 1)
    for number in range(0, 400, 2):
        Statement(scattered, number).settle((0,), None, ACKNOWLEDGED)
    assert log.size_bytes == 3 * SESSION_BYTES + 200 * RUN_BYTES
    for number in range(1, 400, 2):
        Statement(scattered, number).settle((0,), None, ACKNOWLEDGED)
    assert log.size_bytes == 3 * SESSION_BYTES + RUN_BYTES, "what touches is one run again"
    for number in range(1000, 1400, 2):
        Statement(scattered, number).settle((0,), None, ACKNOWLEDGED)
    log.transaction((b"4", NOBODY), 1)
    assert len(log) == 1
    assert log.size_bytes == SESSION_BYTES
    Statement(scattered, 2000).settle((0,), None, ACKNOWLEDGED)
    assert log.size_bytes == SESSION_BYTES, "what is kept no more counts no more"


def test_a_session_belongs_to_who_took_its_latest_number() -> None:
    """W102"""
    log = StatementLog()
    client = (b"s", NOBODY)
    assert not log.belongs(client, 1)
    transaction = log.transaction(client, 5)
    assert log.belongs(client, 5)
    assert log.belongs(client, 9)
    transaction.give_away()
    assert not log.belongs(client, 5)
    assert not log.belongs(client, 6)
    assert log.belongs(client, 4)  # refused, whoever has the session
    transaction.take(1.0, Search.NONE)
    assert log.belongs(client, 6)
    log.begin_generation()
    assert not log.belongs(client, 6)
    assert log.belongs((b"t", NOBODY), 1) == (log.latest((b"t", NOBODY)) is not None)


def test_what_another_process_knows_is_added() -> None:
    """W102"""
    log = StatementLog()
    transaction = log.transaction((b"s", NOBODY), 1)
    assert transaction.is_untried
    transaction.learn([(0, 3), (7, 8)], [(5, 6)], is_native=False, is_sought=False)
    assert [number for number in range(9) if number in transaction.written] == [0, 1, 2, 7]
    assert transaction.written.spans() == [(0, 3), (7, 8)]
    assert 5 in transaction.lost
    assert not transaction.is_untried
    assert log.size_bytes == transaction.size_bytes == SESSION_BYTES + 3 * RUN_BYTES
    transaction.learn([(2, 5)], [], is_native=True, is_sought=True)
    assert transaction.written.spans() == [(0, 5), (7, 8)]
    assert transaction.is_native
    assert transaction.is_sought


def test_w102_what_is_in_progress_is_contested_until_it_is_over() -> None:
    log = StatementLog()
    waiting, done, forgotten = (log.transaction((each, NOBODY), 1) for each in (b"a", b"b", b"c"))
    statements = [Statement(waiting, 0), Statement(done, 0), Statement(forgotten, 0)]
    statements[1].settle((0,), None, None)
    log.transaction((b"c", NOBODY), 2)
    log.begin_generation()
    log.contest_all(10.0)
    log.contest_all(20.0)
    assert [each.is_contested for each in statements] == [True, False, True]
    assert [each.contested_at_seconds for each in statements] == [10.0, math.inf, 10.0]
    assert log.contested == 2
    statements[0].settle((0,), None, None)
    log.concede(statements[2])
    assert not any(each.is_contested for each in statements)
    assert log.contested == 0


def test_w102_what_was_taken_lately_is_not_contested() -> None:
    log = StatementLog()
    old, new = (log.transaction((each, NOBODY), 1) for each in (b"a", b"b"))
    old.take(5.0, Search.NONE)
    new.take(9.0, Search.SOUGHT)
    statements = [Statement(old, 0), Statement(new, 0)]
    log.contest_all(10.0, 9.0)
    assert [each.is_contested for each in statements] == [True, False]


def test_w102_what_is_staged_after_the_session_was_lost_is_contested() -> None:
    """A large insert is staged in steps; its session may be lost, and taken again, between them."""
    log = StatementLog()
    transaction = log.transaction((b"a", NOBODY), 1)
    transaction.commands = 1
    log.begin_generation()
    assert Statement(transaction, 0).is_contested
    transaction.take(1.0, Search.SOUGHT)
    assert Statement(transaction, 1).is_contested
    transaction.commands = 0
    transaction.take(1.0, Search.SOUGHT)
    assert not Statement(transaction, 2).is_contested
    assert log.contested == 2


def test_what_is_over_is_not_kept() -> None:
    log = StatementLog()
    transaction = log.transaction((b"a", NOBODY), 1)
    statements = [Statement(transaction, number) for number in range(3)]
    assert list(log.active) == [transaction]
    for statement in statements[:2]:
        statement.settle((0,), None, None)
    assert list(log.active) == [transaction]
    statements[2].lose(CommandError(6, "lost"))
    assert not log.active
