"""Statements that are sent again through another proxy are executed once (W102)."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from bson.binary import Binary
from bson.int64 import Int64

from tests.support.isolation import all_at_once
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.ports import free_port
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
LINKED = "tsproxy_peers_linked"


@contextmanager
def started(folder: Path, uris: Sequence[str], access: str) -> Iterator[tuple[ProxyProcess, ProxyProcess]]:
    """Two proxies that know one another."""
    flags = ["--timeseries-access", access]
    one, two = (ProxyProcess(folder / str(number), uri, flags=flags) for number, uri in enumerate(uris))
    both = one, two
    try:
        for each in both:
            each.start()
        for each in both:
            each.wait_until(lambda each=each: each.metrics().get(LINKED) == 1)
        yield both
    finally:
        for each in both:
            if each.running:
                os.kill(each.pid, signal.SIGCONT)
                each.stop()


@pytest.fixture(params=["buckets", "native"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, backend: MongodProcess
) -> Iterator[tuple[ProxyProcess, ProxyProcess]]:
    with started(tmp_path, [backend.uri] * 2, request.param) as both:
        yield both


class Statement:
    """A retryable insert, as a driver sends it to any of its servers."""

    def __init__(self, database: str, count: int, *, ordered: bool, session: Binary | None = None, number: int = 1):
        self.session = session or Binary(uuid4().bytes, 4)
        self.number = number
        self.is_ordered = ordered
        self.ids = [ObjectId() for _ in range(count)]
        self.document: dict[str, Any] = {
            "insert": "c",
            "documents": [
                {"t": START + dt.timedelta(milliseconds=place), "m": "a", "_id": each, "v": place}
                for place, each in enumerate(self.ids)
            ],
            "ordered": ordered,
            "lsid": {"id": self.session},
            "txnNumber": Int64(number),
            "$db": database,
        }

    def send(self, proxy: ProxyProcess) -> None:
        with RawClient(proxy.port) as client:
            self.send_with(client)

    def send_with(self, client: RawClient) -> None:
        reply = client.run(self.document)
        assert (reply["ok"], reply["n"]) == (1, len(self.ids)), reply
        assert "writeErrors" not in reply, reply

    def send_and_leave(self, proxy: ProxyProcess) -> None:
        """Without waiting for the reply."""
        with RawClient(proxy.port) as client:
            client.send(command(self.document))

    def next(self) -> Statement:
        return Statement(
            self.document["$db"],
            len(self.ids),
            ordered=self.document["ordered"],
            session=self.session,
            number=self.number + 1,
        )


KINDS = {
    "one": {"count": 1, "ordered": True},
    "ordered": {"count": 40, "ordered": True},
    "unordered": {"count": 40, "ordered": False},
}


def stored(backend: MongodProcess, database: str) -> list[Any]:
    return sorted(row["_id"] for row in backend.shared_client[database].c.find({}, {"_id": 1}))


def check(backend: MongodProcess, database: str, statements: list[Statement]) -> None:
    assert stored(backend, database) == sorted(each for statement in statements for each in statement.ids)


def made(database: str) -> list[Statement]:
    return [Statement(database, **kind) for kind in KINDS.values()]


def test_a_live_proxy_is_asked(pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str) -> None:
    one, two = pair
    statements = made(database)
    for statement in statements:
        statement.send(one)
        statement.send(two)
        statement.send(one)
    # A session that was at both, and whose next number goes to each of them first.
    for first, second in ((one, two), (two, one)):
        further = [statement.next() for statement in statements[-3:]]
        for statement in further:
            statement.send(first)
            statement.send(second)
        statements += further
    check(backend, database, statements)
    assert two.metrics()["tsproxy_peer_doubles_prevented_total"] > 0


@pytest.mark.parametrize("first", [0, 2**31 - 2, 2**31 - 1], ids=["small", "large", "largest"])
def test_statements_of_any_id_without_an_id_of_their_own(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str, first: int
) -> None:
    """They cannot be looked up: the other proxy must be told. A server's ids go on with the smallest."""
    lsid = {"id": Binary(uuid4().bytes, 4)}
    rows = [{"t": START, "m": place} for place in range(3)]
    numbers = {"stmtId": first, "txnNumber": Int64(1), "ordered": False}
    with RawClient(pair[0].port) as one, RawClient(pair[1].port) as two:
        for client in (one, two, one, two):
            assert client.run({"insert": "c", "documents": rows, "lsid": lsid, **numbers, "$db": database})["n"] == 3
    assert backend.shared_client[database].c.count_documents({}) == 3
    assert [each.log.count("Traceback") for each in pair] == [0, 0]


def test_a_killed_proxy_s_rows_are_found(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str
) -> None:
    """Also by the process that had the number before."""
    one, two = pair
    before = made(database)
    for statement in before:
        statement.send(two)
    statements = [*(statement.next() for statement in before), *made(database)]
    for statement in statements:
        statement.send(one)
    one.kill()
    for statement in statements:
        statement.send(two)
        statement.send(two)
    check(backend, database, [*before, *statements])


def test_a_client_that_sends_to_both_at_once(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str
) -> None:
    """As if its first connection had been cut: the first try may be anywhere."""
    statements = [statement for _ in range(30) for statement in made(database)]
    for place, statement in enumerate(statements):
        first, second = pair if place % 2 else reversed(pair)
        all_at_once([lambda: statement.send(first), lambda: statement.send(second)])  # noqa: B023
    check(backend, database, statements)


def _repeat(proxy: ProxyProcess, document: dict[str, Any]) -> None:
    """As drivers do after an error after which they may."""
    with RawClient(proxy.port) as client:
        reply = client.run(document)
        while "RetryableWriteError" in reply.get("errorLabels", ()):
            reply = client.run(document)
    assert reply["n"] == len(document["documents"]), reply


@pytest.mark.parametrize("pair", ["native"], indirect=True)
def test_a_statement_in_progress_is_not_relayed(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str
) -> None:
    """One half, ordered, would be relayed; all of it, unordered, is executed by the proxy."""
    statements = [Statement(database, 20, ordered=True) for _ in range(60)]
    for statement in statements:
        rows = statement.document["documents"]
        numbers = {"stmtIds": list(range(10, 20))}
        half = {**statement.document, "documents": rows[10:], "ordered": True, **numbers}
        whole = {**statement.document, "ordered": False}
        all_at_once([partial(_repeat, pair[0], each) for each in (half, whole)])
    check(backend, database, statements)


def test_a_stopped_proxy_does_not_execute_what_it_still_gets(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str
) -> None:
    """What arrives while it is stopped is in its sockets when it goes on."""
    one, two = pair
    before = made(database)
    for statement in before:
        statement.send(one)
    statements = [*(statement.next() for statement in before), *made(database)]
    os.kill(one.pid, signal.SIGSTOP)
    for statement in statements:
        statement.send_and_leave(one)
    for statement in statements:
        statement.send(two)
    os.kill(one.pid, signal.SIGCONT)
    one.wait_until(lambda: one.metrics().get(LINKED) == 1)
    last = Statement(database, 1, ordered=True)
    last.send(one)
    for statement in statements:
        statement.send(one)
    check(backend, database, [*before, *statements, last])


@pytest.mark.parametrize("kind", ["one", "unordered"])
def test_what_is_begun_behind_fences_is_not_looked_up(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str, kind: str
) -> None:
    """What a stopped proxy may have executed is looked up, but not what its client has begun later."""
    one, two = pair
    statements = [Statement(database, **KINDS[kind])]
    statements[0].send(one)
    statements.append(statements[0].next())
    statements[1].send(one)
    os.kill(one.pid, signal.SIGSTOP)
    with RawClient(two.port) as client:
        statements[1].send_with(client)
        for _ in range(60):
            statements.append(statements[-1].next())
            statements[-1].send_with(client)
    statements[-1].send(two)
    looked_up = two.metrics()["tsproxy_peer_looked_up_total"]
    os.kill(one.pid, signal.SIGCONT)
    one.wait_until(lambda: one.metrics().get(LINKED) == 1)
    statements[-1].send(one)
    check(backend, database, statements)
    assert 2 <= looked_up < 10


@pytest.fixture(params=["buckets", "native"])
def pair_with_link(
    request: pytest.FixtureRequest, tmp_path: Path, backend: MongodProcess
) -> Iterator[tuple[ProxyProcess, ProxyProcess, Link]]:
    """As ``pair``; the first one reaches the backend over a link."""
    with Link(backend.port) as link, started(tmp_path, [link.uri, backend.uri], request.param) as both:
        yield *both, link


def test_a_proxy_that_comes_back_sends_nothing_again_that_another_has_executed(
    pair_with_link: tuple[ProxyProcess, ProxyProcess, Link], backend: MongodProcess, database: str
) -> None:
    """Its machine loses the network, and stands still. What it has accepted waits to be sent, or for lost replies."""
    one, two, link = pair_with_link
    before = made(database)
    for statement in before:
        statement.send(one)
    retried, left = [*(statement.next() for statement in before), *made(database)], made(database)
    link.target_port = free_port()
    link.cut_all()
    for statement in (*retried, *left):
        statement.send_and_leave(one)
    # Where the access is native, ordered ones of several documents are relayed.
    staged = sum(len(statement.ids) for statement in (*retried, *left) if not statement.is_ordered)
    one.wait_until(lambda: one.metrics()["tsproxy_uncommitted_measurements"] >= staged)
    os.kill(one.pid, signal.SIGSTOP)
    for statement in retried:
        statement.send(two)
    link.target_port = backend.port
    os.kill(one.pid, signal.SIGCONT)
    one.wait_until(lambda: one.metrics()["tsproxy_uncommitted_measurements"] == 0)
    for statement in (*retried, *left):
        statement.send(one)
        statement.send(two)
    check(backend, database, [*before, *retried, *left])


@pytest.mark.parametrize("pair", ["buckets"], indirect=True)
def test_a_single_delete_through_both_deletes_one(
    pair: tuple[ProxyProcess, ProxyProcess], backend: MongodProcess, database: str
) -> None:
    """X2, U8: one after the other, and at once; of buckets that go with their last row, and of others."""
    with pair[0].client() as client:
        rows = [{"t": START + dt.timedelta(seconds=row), "m": row % 40, "n": row} for row in range(60)]
        client[database].c.insert_many(rows)
    left = len(rows)
    for number in range(len(rows)):
        deleted = Deleted(database, find_and_modify=number % 4 == 3)
        first, second = pair if number % 2 else reversed(pair)
        if number % 3:
            all_at_once([lambda: deleted.send(first), lambda: deleted.send(second)])  # noqa: B023
        else:
            deleted.send(first)
            deleted.send(second)
        left -= 1
        assert backend.shared_client[database].c.count_documents({}) == left
        if number % 4 == 3:
            one, same = deleted.values
            assert one == same
            assert backend.shared_client[database].c.count_documents({"_id": one["_id"]}) == 0


class Deleted:
    """A retryable delete of any one measurement."""

    def __init__(self, database: str, *, find_and_modify: bool) -> None:
        deletes = {"delete": "c", "deletes": [{"q": {}, "limit": 1}]}
        self.document: dict[str, Any] = {
            **({"findAndModify": "c", "query": {}, "remove": True} if find_and_modify else deletes),
            "lsid": {"id": Binary(uuid4().bytes, 4)},
            "txnNumber": Int64(1),
            "$db": database,
        }
        self.values: list[dict[str, Any]] = []
        """What ``findAndModify`` has returned."""

    def send(self, proxy: ProxyProcess) -> None:
        with RawClient(proxy.port) as client:
            reply = client.run(self.document)
        assert reply["ok"] == 1, reply
        assert "writeErrors" not in reply, reply
        if "value" in reply:
            self.values.append(reply["value"])
        else:
            assert reply["n"] == 1
