"""``docs/compatibility.md`` is complete against the tables of the code, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from proxy.request.command_table import TABLE, Way
from rewrite.commands.aggregate import LEFT_TO_THE_VIEW
from rewrite.commands.refused import REFUSED
from rewrite.commands.schema import SCHEMA
from rewrite.registry import REWRITERS
from tests.support.expectations import AFTER_6_0_5, BEFORE_6_0

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "compatibility.md").read_text()
PASSED_ON = {*SCHEMA, "mapReduce", "mapreduce"}
"""Commands whose rewriters only say what changes in the proxy, or that the view refuses them."""

REFERENCES = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT)))


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its two head lines."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def way_of(command: str) -> str:
    """What the code does with a command on a time-series collection."""
    if command in REFUSED:
        return "refused"
    row = TABLE[command]
    if row.way is Way.INGEST:
        return "taken"
    if row.way in (Way.ANSWER, Way.ADMIN):
        return "answered"
    return "rewritten" if command in REWRITERS and command not in PASSED_ON else "relayed"


def test_every_command_has_its_line() -> None:
    documented = [command for row in rows_of("Commands") for command in in_code(row[0])]
    assert sorted(documented) == sorted(TABLE.keys() | REWRITERS.keys())


def test_lines_say_what_the_code_does() -> None:
    for row in rows_of("Commands"):
        assert {way_of(command) for command in in_code(row[0])} == set(row[1].split(", ")), row[0]


def test_every_stage_that_is_treated_specially_has_its_line() -> None:
    documented = {stage for row in rows_of("Aggregation stages") for stage in in_code(row[0])}
    assert documented >= LEFT_TO_THE_VIEW


@pytest.mark.parametrize("reference", REFERENCES)
def test_named_tests_exist(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert (ROOT / path).is_file()
    if name:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_every_line_names_a_test() -> None:
    for heading in ("Commands", "Aggregation stages", "Clients"):
        for row in rows_of(heading):
            assert "`tests/" in row[-1], row[0]


@pytest.mark.parametrize("test", sorted(BEFORE_6_0.keys() | AFTER_6_0_5.keys()))
def test_expected_failures_are_of_tests_that_exist(test: str) -> None:
    file, _, name = test.partition("::")
    definition = f"def {name.partition('[')[0]}("
    assert any(definition in path.read_text() for path in (ROOT / "tests").rglob(file))
