"""``docs/rules.md`` and the citations of its rules are complete against one another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"
CODE = ("proxy", "catalog", "rewrite", "bench", "tests")
SUFFIXES = {".py", ".c", ".h", ".inc", ".md", ".mjs", ".js", ".txt"}
LETTERS = "WCIQUTXVH"

ENTRY = re.compile(rf'<a id="([{LETTERS.lower()}]\d+(?:\.\d)?)"></a>\*\*([{LETTERS}]\d+(?:\.\d)?)\b')
# Neither an X509 certificate nor a word in quotes, such as the name of a workload or a value in a test.
CITATION = re.compile(
    rf"(?<![\w-])(?<!(?<!\")\")([{LETTERS}])(\d{{1,3}}(?:\.\d)?)(?:(?:\s?[-–]\s?|\sto\s)\1(\d{{1,3}}))?(?!\w)"
)
IN_NAMES = re.compile(rf"_([{LETTERS.lower()}])(\d{{1,3}})(?=_)(?:_to_\1(\d{{1,3}})(?=_))?")
TEST_NAME = re.compile(r"^ *(?:async )?def test(_\w+)", re.MULTILINE)
WORKLOADS = {"W1", "W2", "W3"}
"""The bench gives its workloads letters and numbers of their own."""


@cache
def rules() -> tuple[str, ...]:
    """The rules of the page, in its order."""
    return tuple(number for _, number in ENTRY.findall(PAGE.read_text()))


def between(letter: str, first: str, last: str) -> Iterator[str]:
    """What one citation names; of a range, both ends and every rule between them."""
    yield letter + first
    if last:
        yield letter + last
        inside = range(int(first) + 1, int(last))
        yield from (rule for rule in rules() if rule[0] == letter and rule[1:].isdecimal() and int(rule[1:]) in inside)


def cited_in(text: str) -> set[str]:
    """The rules that a text cites, in prose or in the names of tests."""
    found = {rule for match in CITATION.finditer(text) for rule in between(match[1], match[2], match[3] or "")}
    for name in TEST_NAME.findall(text):
        found.update(
            rule for match in IN_NAMES.finditer(name) for rule in between(match[1].upper(), match[2], match[3] or "")
        )
    return found


def cited_by(path: Path) -> set[str]:
    """The rules that a file cites."""
    names_workloads = "bench" in path.relative_to(ROOT).parts or path.name == "benchmarks.md"
    return cited_in(path.read_text()) - (WORKLOADS if names_workloads else set())


def files(*folders: str) -> list[Path]:
    """The sources of some folders, without what is installed or built in them."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path.name != Path(__file__).name and "node_modules" not in path.parts
    )


def sections() -> dict[str, str]:
    """Each rule's text, without the rules of its own that it numbers."""
    whole = re.compile(r'<a id="[a-z]\d+"></a>\*\*(\w+).*?(?=\n\n<a id="[a-z]\d+"></a>|\n\n## |\Z)', re.DOTALL)
    return {match[1]: match[0] for match in whole.finditer(PAGE.read_text())}


@pytest.mark.parametrize(
    ("text", "rules_cited"),
    [
        ("see W64, and (U1.4, H2)", {"W64", "U1.4", "H2"}),
        ('"""W63"""', {"W63"}),
        ("C40-C42 and I5–I7", {"C40", "C41", "C42", "I5", "I6", "I7"}),
        ("W22 to W24", {"W22", "W23", "W24"}),
        ("def test_c41_to_c43_coll_mod_x2_32_bits() -> None:", {"C41", "C42", "C43", "X2"}),
        ('MONGODB-X509, {"a": "H1"}, AW12, W12x', set()),
    ],
)
def test_citations_are_recognised(text: str, rules_cited: set[str]) -> None:
    assert cited_in(text) == rules_cited


def test_each_rule_has_one_entry_under_its_own_anchor() -> None:
    entries = ENTRY.findall(PAGE.read_text())
    assert [number for anchor, number in entries if anchor != number.lower()] == []
    assert sorted(set(rules())) == sorted(rules())
    assert PAGE.read_text().count("<a id=") == len(entries)


def test_every_rule_that_is_cited_is_on_the_page() -> None:
    known = set(rules())
    unknown = {
        str(path.relative_to(ROOT)): sorted(missing)
        for path in [*ROOT.glob("*.md"), *files("docs", *CODE)]
        if (missing := cited_by(path) - known)
    }
    assert unknown == {}


def test_every_rule_of_the_page_is_cited_by_code_or_a_test() -> None:
    cited = set().union(*(cited_by(path) for path in files(*CODE)))
    # The parts of a rule that numbers them are cited by it.
    assert [rule for rule in rules() if rule not in cited and "." not in rule] == []


def test_every_rule_names_a_test_that_exists() -> None:
    texts = sections()
    assert set(texts) == {rule for rule in rules() if "." not in rule}
    named = {rule: re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text) for rule, text in texts.items()}
    shown = {rule: [(path, name) for path, name in tests if "/test_" in path] for rule, tests in named.items()}
    assert [
        rule
        for rule, tests in shown.items()
        if not tests and not re.search(r"\bUntested: needs a server from \d", texts[rule])
    ] == []
    assert {(rule, *test) for rule, tests in shown.items() for test in tests if not is_test(*test)} == set()


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """The names of a test module's tests; none when there is no such module."""
    module = ROOT / "tests" / path
    tree = ast.parse(module.read_text()) if module.exists() else ast.Module([], [])
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def is_test(path: str, name: str) -> bool:
    """Whether a test module holds this test, or any when no name is given."""
    return name in names_of_tests(path) if name else bool(names_of_tests(path))
