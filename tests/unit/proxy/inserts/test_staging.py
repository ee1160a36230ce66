"""Statements that were executed already are answered from the record, whichever way inserts take (W102)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.commit.restart_dedup import Found, RestartDedup
from catalog.commit.statements import Statement, StatementLog
from catalog.commit.tenure import Search
from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from proxy.inserts.catalog_staging import CatalogStaging
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.native_staging import NativeStaging
from proxy.inserts.staging import Staging, is_recorded, is_settled_by
from tests.support.catalog_parts import KEY, CatalogBench
from tests.support.committer_bench import ScriptedStore


def expected_reply() -> tuple[InsertReply, list[dict[str, Any]]]:
    """What collects the results of an insert, and the replies that it made."""
    replies: list[dict[str, Any]] = []
    insert = InsertCommand((b"",) * 2, False, b"", b"s", 1, range(2), True, 0)
    return InsertReply(insert, lambda raw, _: replies.append(bson.decode(raw or b""))), replies


def test_a_new_statement_is_not_recorded() -> None:
    transaction, (writer, replies) = StatementLog().transaction((b"s", KEY.identity), 1), expected_reply()
    assert not is_recorded(transaction, 0, writer, 0, 1.0)
    writer.staged()
    assert replies == [{"n": 0, "ok": 1.0}], "nothing is outstanding"


def test_one_in_progress_is_waited_for_and_a_written_one_is_answered() -> None:
    transaction, (writer, replies) = StatementLog().transaction((b"s", KEY.identity), 1), expected_reply()
    statement = Statement(transaction, 0)
    assert is_recorded(transaction, 0, writer, 0, 1.0)
    writer.staged()
    assert replies == []
    statement.settle((0,), None, Acknowledgement())
    assert replies == [{"n": 1, "ok": 1.0}]
    again, told = expected_reply()
    assert is_recorded(transaction, 0, again, 1, 1.0)
    again.staged()
    assert told == [{"n": 1, "ok": 1.0}]


def test_a_lost_one_is_refused() -> None:
    transaction, (writer, _) = StatementLog().transaction((b"s", KEY.identity), 1), expected_reply()
    Statement(transaction, 0).lose(CommandError(6, "lost"))
    with pytest.raises(CommandError, match="not executed again"):
        is_recorded(transaction, 0, writer, 0, 1.0)


def test_what_a_look_up_says_about_a_statement() -> None:
    transaction, acknowledgement = StatementLog().transaction((b"s", KEY.identity), 1), Acknowledgement()
    found = Found(frozenset({0}), acknowledgement)
    assert is_settled_by(CommandError(6, "lost"), 0, Statement(transaction, 0))
    assert is_settled_by(found, 0, Statement(transaction, 1))
    assert 1 in transaction.written
    assert not is_settled_by(found, 1, Statement(transaction, 2))
    assert 2 not in transaction.written


def test_only_the_first_transaction_of_a_session_may_be_written() -> None:
    log, bench = StatementLog(), CatalogBench()
    clock, collection = bench.clock, bench.virtual
    staging = Staging(RestartDedup(ScriptedStore(), clock, 60.0, 1.0, lambda work: work.close()))
    first = log.transaction((b"s", KEY.identity), 1)
    assert staging.may_be_written(first, collection)
    second = log.transaction((b"s", KEY.identity), 2)
    assert not staging.may_be_written(second, collection)
    second.take(1.0, Search.FENCED)
    assert not staging.may_be_written(second, collection)
    second.take(1.0, Search.SOUGHT)
    assert staging.may_be_written(second, collection)
    clock.now += 61
    assert not staging.may_be_written(first, collection)


@pytest.mark.parametrize("name", ["stage", "stage_one"])
def test_both_ways_offer_all_of_it(name: str) -> None:
    for way in (CatalogStaging, NativeStaging):
        assert getattr(way, name) is not getattr(Staging, name)
