"""Statements that were executed already are answered from the record, whichever way inserts take (W102)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from catalog.restart_dedup import RestartDedup
from catalog.statements import Statement, StatementLog
from proxy.inserts.catalog_staging import CatalogStaging
from proxy.inserts.native_staging import NativeStaging
from proxy.inserts.staging import Staging, is_recorded
from tests.support.catalog_parts import KEY, CatalogBench, RememberingWriter
from tests.support.committer_bench import ScriptedStore


class ReplyDouble(RememberingWriter):
    """Counts what it expects."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = 0

    def expect(self) -> None:
        self.expected += 1


def test_a_new_statement_is_not_recorded() -> None:
    transaction, writer = StatementLog().transaction((b"s", KEY.identity), 1), ReplyDouble()
    assert not is_recorded(transaction, 0, writer, 0, 1.0)  # type: ignore[arg-type]
    assert (writer.expected, writer.told) == (0, {})


def test_one_in_progress_is_waited_for_and_a_written_one_is_answered() -> None:
    transaction, writer = StatementLog().transaction((b"s", KEY.identity), 1), ReplyDouble()
    statement: Any = Statement(transaction, 0)
    assert is_recorded(transaction, 0, writer, 5, 1.0)  # type: ignore[arg-type]
    assert (writer.expected, writer.told) == (1, {})
    statement.settle((0,), None, Acknowledgement())
    assert is_recorded(transaction, 0, writer, 6, 1.0)  # type: ignore[arg-type]
    assert writer.told == {5: None, 6: None}


def test_a_lost_one_is_refused() -> None:
    transaction, writer = StatementLog().transaction((b"s", KEY.identity), 1), ReplyDouble()
    Statement(transaction, 0).lose(CommandError(6, "lost"))
    with pytest.raises(CommandError, match="not executed again"):
        is_recorded(transaction, 0, writer, 0, 1.0)  # type: ignore[arg-type]


def test_only_the_first_transaction_of_a_session_may_be_written() -> None:
    log, clock = StatementLog(), CatalogBench().clock
    staging = Staging(RestartDedup(ScriptedStore(), clock, 60.0, 1.0, lambda work: work.close()))
    first = log.transaction((b"s", KEY.identity), 1)
    assert staging.may_be_written(first)
    assert not staging.may_be_written(log.transaction((b"s", KEY.identity), 2))
    clock.now += 61
    assert not staging.may_be_written(first)


def test_both_ways_offer_all_of_it() -> None:
    wanted = {name for name in vars(Staging) if not name.startswith("_")} - {"kick", "may_be_written"}
    for way in (CatalogStaging, NativeStaging):
        assert wanted <= set(vars(way))
