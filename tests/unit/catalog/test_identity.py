"""Identities are equal only when they name the same users."""

from __future__ import annotations

from catalog.buckets.write_batch import CombineKey
from catalog.commit.statements import StatementLog
from catalog.identity import NOBODY, Identity, User, identity_of


def test_names_that_read_alike_when_they_are_joined_are_different() -> None:
    alike = [
        identity_of([("a@b", "c")]),
        identity_of([("a", "b@c")]),
        identity_of([("a", "b"), ("c", "d")]),
        identity_of([("a@b,c", "d")]),
        identity_of([("a", "b,c@d")]),
    ]
    assert len(set(alike)) == len(alike)
    log = StatementLog()
    transactions = {id(log.transaction((b"session", each), 1)) for each in alike}
    assert len(transactions) == len(alike)
    assert len({CombineKey(b"", each) for each in alike}) == len(alike)


def test_order_does_not_matter() -> None:
    one, other = identity_of([("a", "x"), ("b", "y")]), identity_of([("b", "y"), ("a", "x")])
    assert one == other
    assert hash(one) == hash(other)
    assert one.users == (User("a", "x"), User("b", "y"))


def test_nobody() -> None:
    assert not NOBODY
    assert identity_of([]) is NOBODY
    assert identity_of([("a", "x")])
    assert Identity() == NOBODY
    assert NOBODY != ""
