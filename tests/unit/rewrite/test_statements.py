"""Statements of large writes, one by one (W94)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.bson.faithful import Opaque, Unfaithful
from catalog.bson.raw import MalformedBSON
from rewrite.plan import PAUSE
from rewrite.statements import AT_ONCE, MAX_STATEMENTS, Statements, need_rewriting, statement_of
from tests.support.operands import SCALARS, array_of, object_of, value_of

PLAIN = bson.encode({"q": {"x": 1}, "limit": 0})


def verdict(statements: Statements, **judged: bool) -> tuple[bool, int]:
    """Whether they need rewriting, and in how many pauses that was found out."""
    work = need_rewriting(statements, lambda _: judged.get("well_formed", True), lambda _: judged.get("native", False))
    pauses = 0
    while True:
        try:
            assert next(work) is PAUSE
        except StopIteration as stop:
            return stop.value, pauses
        pauses += 1


def test_documents_of_a_sequence_and_of_an_array() -> None:
    assert list(Statements([PLAIN, PLAIN])) == [PLAIN, PLAIN]
    assert list(Statements(array_of(b"\x03" + PLAIN, b"\x03" + PLAIN)[1:])) == [PLAIN, PLAIN]
    with pytest.raises(MalformedBSON):
        list(Statements(array_of(value_of(1))[1:]))


def test_only_what_is_handed_on_may_be_opaque() -> None:
    lossy = object_of({"x": SCALARS["undefined"]})
    statement = statement_of(object_of({"q": lossy, "limit": value_of(0)})[1:])
    assert isinstance(statement["q"], Opaque)
    assert statement["q"].raw == lossy[1:]
    assert statement["limit"] == 0
    for fields in (
        {"q": lossy, "limit": SCALARS["undefined"]},
        {"q": lossy, "collation": lossy},
        {"q": array_of(lossy)},
    ):
        with pytest.raises(Unfaithful):
            statement_of(object_of(fields)[1:])


def test_a_name_that_stands_twice_is_the_backends_to_judge() -> None:
    query = object_of({"x": value_of(1)})
    inside = b"".join(b"\x03q\0" + query[1:] for _ in range(2))
    with pytest.raises(Unfaithful):
        statement_of((len(inside) + 5).to_bytes(4, "little") + inside + b"\0")


@pytest.mark.parametrize(
    ("judged", "expected"),
    [({}, True), ({"native": True}, False), ({"well_formed": False}, False)],
)
def test_many_statements_are_looked_at_with_pauses(judged: dict[str, bool], expected: bool) -> None:
    found, pauses = verdict(Statements([PLAIN] * (10 * AT_ONCE)), **judged)
    assert found is expected
    assert pauses == (0 if "well_formed" in judged else 10)


def test_w94_more_than_a_server_takes_are_left_to_it() -> None:
    assert verdict(Statements([PLAIN] * (MAX_STATEMENTS + 1)))[0] is False


def test_statements_that_are_none_are_left_to_the_backend() -> None:
    broken: list[Any] = [PLAIN, object_of({"q": SCALARS["undefined"]})[1:]]
    assert verdict(Statements(broken))[0] is False
    assert verdict(Statements(array_of(value_of(1))[1:]))[0] is False
