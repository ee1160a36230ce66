"""Two proxies of one backend, of which one can be isolated: its clients reach it, and nothing else does."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import bson
from bson import ObjectId
from bson.binary import Binary
from bson.int64 import Int64

from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.ports import free_port
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command, document_of

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
LINKED = "tsproxy_peers_linked"
UNCOMMITTED = "tsproxy_uncommitted_measurements"
BEHIND = "127.0.0.2"
"""Where proxies listen for one another; they look for one another on 127.0.0.1, where the links are."""
PATIENCE_SECONDS = 12
REPLY_SECONDS = 30.0
GIVEN_UP_SECONDS = 3.5
SHAPES = ((1, True), (12, True), (12, False))
"""How many rows statements have, and whether they are ordered."""


class Statement:
    """A retryable insert of a session of its own, as a driver sends it to any of its servers."""

    def __init__(self, database: str, series: str, count: int, *, ordered: bool, session: Binary, number: int) -> None:
        self.session = session
        self.rows = [
            {"_id": ObjectId(), "t": START + dt.timedelta(milliseconds=place), "m": series, "v": float(place)}
            for place in range(count)
        ]
        self.document: dict[str, Any] = {
            "insert": "c",
            "documents": self.rows,
            "ordered": ordered,
            "lsid": {"id": session},
            "txnNumber": Int64(number),
            "$db": database,
        }

    def is_done(self, reply: dict[str, Any] | None) -> bool:
        """Whether a reply acknowledges it; ``AssertionError`` if drivers would give it up."""
        if reply is None:
            return False
        if reply["ok"] == 1 and "writeErrors" not in reply:
            assert reply["n"] == len(self.rows), reply
            return True
        assert "RetryableWriteError" in reply.get("errorLabels", ()), reply
        return False

    def send(self, proxy: ProxyProcess) -> None:
        """Once, successfully."""
        with RawClient(proxy.port) as client:
            reply = client.run(self.document)
        assert self.is_done(reply), reply

    def repeat(self, proxy: ProxyProcess) -> None:
        """As a patient application does, until it is acknowledged."""
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            with RawClient(proxy.port) as client:
                reply = client.run(self.document)
            if self.is_done(reply):
                return
            assert time.monotonic() < deadline, reply
            time.sleep(0.2)


class Attempt:
    """A statement that was sent, and whose reply is not read yet."""

    def __init__(self, statement: Statement, proxy: ProxyProcess) -> None:
        self.statement = statement
        self._client = RawClient(proxy.port, REPLY_SECONDS)
        self._client.send(command(statement.document))

    def is_acknowledged(self) -> bool:
        """Waits for the reply; an error must be one that drivers retry."""
        with self._client as client:
            message = client.receive()
        return self.statement.is_done(None if message is None else document_of(message))

    def leave(self) -> None:
        """Without waiting for it."""
        self._client.socket.close()


def all_at_once(calls: Iterable[Callable[[], object]]) -> None:
    """Each in a thread; the first error is raised when all have ended."""
    errors: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Isolation:
    """The proxies ``one``, which can be isolated, and ``two``; started by ``with``."""

    def __init__(
        self,
        backend: MongodProcess,
        folder: Path,
        database: str,
        flags: Sequence[str],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        are_linked: bool = True,
    ) -> None:
        """``patience_seconds``: of ``one``; ``are_linked``: if not, they never reach one another."""
        self.backend = backend
        self.database = database
        self.expected: list[Statement] = []
        self._stack = ExitStack()
        self._ports = [free_port(), free_port()]
        self.behind = self._link(backend.port)
        self.between = [self._link(port, target_host=BEHIND, port=port) for port in self._ports]
        self._are_linked = are_linked
        self.one = self._proxy(folder / "one", self.behind.uri, self._ports[0], patience_seconds, flags)
        self.two = self._proxy(folder / "two", backend.uri, self._ports[1], PATIENCE_SECONDS, flags)

    @staticmethod
    def _proxy(folder: Path, uri: str, peer_port: int, patience_seconds: float, flags: Sequence[str]) -> ProxyProcess:
        port = free_port()
        # Two that served this machine only would not look for one another for long.
        listen = ("--listen", f"0.0.0.0:{port}", "--peer-listen", f"{BEHIND}:{peer_port}")
        patience = ("--server-selection-timeout-ms", str(round(patience_seconds * 1000)))
        return ProxyProcess(folder, uri, port=port, flags=[*listen, *patience, *flags])

    def _link(self, target_port: int, **options: Any) -> Link:
        return self._stack.enter_context(Link(target_port, **options))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        if not self._are_linked:
            self.part()
        for each in self.both:
            self._stack.callback(each.stop)
            each.start()
        if self._are_linked:
            self.wait_until_linked()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def both(self) -> tuple[ProxyProcess, ProxyProcess]:
        """The proxies."""
        return self.one, self.two

    def wait_until_linked(self) -> None:
        """Each can ask the other."""
        for each in self.both:
            each.wait_until(lambda each=each: each.metrics().get(LINKED) == 1)

    # --- the network ----------------------------------------------------------------------------------------

    def isolate(self, *, is_silent: bool) -> None:
        """``is_silent``: no connection ends. What is sent from now on is lost."""
        self._cut([self.behind, *self.between], is_silent=is_silent)

    def cut_off(self, *, is_silent: bool) -> None:
        """Only from the backend."""
        self._cut([self.behind], is_silent=is_silent)

    @staticmethod
    def _cut(links: Sequence[Link], *, is_silent: bool) -> None:
        for each in links:
            each.hold()
            if not is_silent:
                each.cut_all()

    def part(self, *, is_one_way: bool = False) -> None:
        """Only the proxies cannot reach one another; ``is_one_way``: ``one`` can still reach ``two``."""
        for each in self.between[: 1 if is_one_way else 2]:
            each.lose()

    def heal(self) -> None:
        """The networks of all work; connections from before have ended, as has what was on its way."""
        for each in (self.behind, *self.between):
            each.cut_all()
            each.release()

    def deliver(self) -> None:
        """As ``heal``, but what ``one`` has sent to the backend was only late: it arrives now."""
        for each in self.between:
            each.cut_all()
            each.release()
        self.behind.release()

    def wait_until_given_up(self) -> None:
        """``one`` by ``two``: it has answered nothing for longer than others wait."""
        time.sleep(GIVEN_UP_SECONDS)

    # --- statements -----------------------------------------------------------------------------------------

    def known_sessions(self, count: int) -> list[Statement]:
        """Statements of sessions that belong to ``one`` until somebody else takes them; they are acknowledged.

        After an isolation, a first attempt may meet both an old connection and a fence, and get an error that drivers
        retry.
        """
        statements = [self.statement(f"s{place % 5}", SHAPES[place % len(SHAPES)]) for place in range(count)]
        all_at_once(lambda each=each: each.repeat(self.one) for each in statements)
        return statements

    def statement(self, series: str, shape: tuple[int, bool], *, after: Statement | None = None) -> Statement:
        """A new one; ``after``: of the same session."""
        session = Binary(uuid4().bytes, 4) if after is None else after.session
        number = 1 if after is None else int(after.document["txnNumber"]) + 1
        count, ordered = shape
        made = Statement(self.database, series, count, ordered=ordered, session=session, number=number)
        self.expected.append(made)
        return made

    def next(self, statements: Sequence[Statement]) -> list[Statement]:
        """The next of their sessions."""
        return [
            self.statement(f"s{place % 5}", SHAPES[place % len(SHAPES)], after=each)
            for place, each in enumerate(statements)
        ]

    def stored(self, statements: Sequence[Statement]) -> int:
        """How many of their rows are stored; past the proxies."""
        ids = [row["_id"] for each in statements for row in each.rows]
        return self.backend.shared_client[self.database].c.count_documents({"_id": {"$in": ids}})

    def wait_until_nothing_waits(self) -> None:
        """In either proxy."""
        for each in self.both:
            each.wait_until(lambda each=each: not each.metrics()[UNCOMMITTED], REPLY_SECONDS)

    def check(self) -> None:
        """Every row of every statement is stored once, with its values; the proxies show the same."""
        expected = _counted(row for each in self.expected for row in each.rows)
        for name, uri in (("stored", self.backend), ("one", self.one), ("two", self.two)):
            with uri.client() as client:
                found = _counted(client[self.database].c.find())
            more, fewer = found - expected, expected - found
            assert (more.total(), fewer.total()) == (0, 0), (
                f"{name}: {more.total()} rows too many, {fewer.total()} missing, of {expected.total()}"
            )


def _counted(rows: Iterable[dict[str, Any]]) -> Counter[bytes]:
    return Counter(bson.encode(dict(sorted(row.items()))) for row in rows)
