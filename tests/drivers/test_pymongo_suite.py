"""How the outcomes of the suite are judged; the suite itself is run by ``make test-drivers``."""

from __future__ import annotations

from tests.drivers.pymongo_suite import compare, exceptions, explained, needless


def test_only_unexplained_losses_count() -> None:
    direct = {"a": "passed", "b": "passed", "c": "failed", "d": "passed", "e": "passed"}
    proxied = {"a": "passed", "b": "failed", "c": "failed", "d": "failed", "f": "passed"}
    assert compare(direct, proxied, {"d": "known"}) == ["b: failed", "e: missing"]


def test_exceptions_have_reasons_and_may_cover_several_tests() -> None:
    for topology in ("standalone", "replica_set"):
        assert all(reason for reason in exceptions(topology).values())
    assert explained("m.T::one", {"m.T::*": "x"})
    assert not explained("m.U::one", {"m.T::*": "x"})
    assert explained("test.asynchronous.test_a.AsyncTestB::c", {"test*.test_a.*TestB::c": "x"})


def test_exceptions_that_nothing_needs_are_found() -> None:
    direct = {"a": "passed", "b": "passed", "c": "skipped"}
    proxied = {"a": "passed", "b": "failed", "c": "skipped"}
    assert needless(direct, proxied, {"a": "old", "b": "needed", "c": "elsewhere", "d": "gone"}) == ["a"]
