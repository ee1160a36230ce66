from __future__ import annotations

import pytest

from proxy.request import command_table
from proxy.request.command_table import TABLE, Fact, Row, Target, Way, commands_with
from rewrite.commands.refused import REFUSED

CASES = {
    "collStats": "collstats",
    "dataSize": "datasize",
    "dbStats": "dbstats",
    "findAndModify": "findandmodify",
    "isMaster": "ismaster",
    "mapReduce": "mapreduce",
}


def test_table_is_alphabetical() -> None:
    assert list(TABLE) == sorted(TABLE, key=lambda name: (name.lower(), name))


@pytest.mark.parametrize(("usual", "lower"), CASES.items())
def test_both_spellings_of_a_command_are_the_same_command(usual: str, lower: str) -> None:
    assert TABLE[usual] == TABLE[lower]


@pytest.mark.parametrize("fact", Fact)
def test_every_fact_has_its_set_of_commands(fact: Fact) -> None:
    assert fact.name is not None
    named = getattr(command_table, fact.name)
    assert named == commands_with(fact) != frozenset()
    assert named < set(TABLE)


def test_a_row_says_nothing_that_is_not_said() -> None:
    assert Row(Target.FIRST, Way.RELAY).facts == Fact(0)


@pytest.mark.parametrize("name", sorted(command_table.REPEATABLE))
def test_what_changes_documents_or_definitions_is_not_simply_repeated(name: str) -> None:
    """Such commands run twice only where the backend records their statements."""
    assert not TABLE[name].facts & (Fact.WRITES | Fact.REDEFINES | Fact.CHANGES_INDEXES | Fact.CHANGES_IDENTITY)


def test_what_is_refused_on_buckets_is_so_after_the_rights_only() -> None:
    assert all(TABLE[name].rights for name in REFUSED)


@pytest.mark.parametrize("name", sorted(command_table.HAS_VIEW))
def test_what_a_view_answers_reads_buckets_when_it_is_relayed(name: str) -> None:
    assert Fact.READS_BUCKETS in TABLE[name].facts


def test_the_proxy_acts_for_clients_in_writes_that_search_only() -> None:
    assert {name for name, row in TABLE.items() if row.rights} - REFUSED.keys() == command_table.SEEKING_WRITES
    assert {name for name, row in TABLE.items() if row.statements} <= command_table.SEEKING_WRITES
