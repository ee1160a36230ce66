"""The errors of single documents: equal ones are kept once, and all are encoded by index, in pieces (W90)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.bson.raw import document
from catalog.errors import BackendUnavailable, CommandError
from proxy.inserts.write_errors import ERRORS_AT_ONCE, WriteErrors


def encoded(errors: WriteErrors, *, first_only: bool = False) -> list[dict[str, Any]]:
    array = document(errors.entries(first_only=first_only))
    return list(bson.decode(document([b"\x04e\0" + array]))["e"])


def test_entries_are_as_a_server_orders_them() -> None:
    given = {
        3: CommandError(2, "bad"),
        0: CommandError(2, "bad"),
        4: CommandError(121, "failed", details={"errInfo": {"a": 1}}),
        5: CommandError(121, "failed", details={"errInfo": {"a": 2}}),
        11: CommandError(3, "bad"),
    }
    errors = WriteErrors()
    for index, error in given.items():
        errors.add(index, error)
    expected = [given[index].write_error(index) for index in sorted(given)]
    assert [list(each.items()) for each in encoded(errors)] == [list(each.items()) for each in expected]
    assert encoded(errors, first_only=True) == expected[:1]
    assert len(errors) == len(given)
    assert (errors.failure, errors.labels(first_only=False)) == (None, [])


@pytest.mark.parametrize("count", [ERRORS_AT_ONCE - 1, ERRORS_AT_ONCE, 2 * ERRORS_AT_ONCE + 1])
def test_many_come_in_pieces(count: int) -> None:
    errors = WriteErrors()
    for index in range(count):
        errors.add(index, CommandError(2, "bad"))
    assert len(list(errors.entries(first_only=False))) == -(-count // ERRORS_AT_ONCE)
    assert encoded(errors) == [{"index": index, "code": 2, "errmsg": "bad"} for index in range(count)]


def test_a_failure_of_the_backend_fails_the_command() -> None:
    errors = WriteErrors()
    errors.add(1, CommandError(2, "unreachable", labels=("B", "A")))
    failure = BackendUnavailable("unreachable", code=2, labels=("C",))
    errors.add(3, failure)
    errors.add(0, CommandError(2, "unreachable"))
    assert errors.failure is failure
    assert errors.labels(first_only=False) == ["A", "B", "C"]
    assert errors.labels(first_only=True) == WriteErrors().labels(first_only=True) == []
