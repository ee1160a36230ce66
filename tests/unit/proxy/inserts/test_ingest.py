"""Inserts are staged at once, in pauses where they concern many buckets, and held back while too much is pending."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import bson
import pytest

from catalog.commit.precedence import GIVES_WAY_SECONDS, GIVING_WAY
from catalog.commit.statements import StatementLog
from catalog.errors import CommandError
from catalog.identity import NOBODY
from proxy.inserts.catalog_staging import BATCHES_IN_A_TURN
from proxy.inserts.held_insert import Recipient
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.slices import Slices
from proxy.inserts.write_strategy import FEWEST_BYTES, Mode, WriteStrategy
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.committer_bench import CommitterBench, HeldStore
from tests.support.exchanges import Told
from tests.support.insert_messages import ElsewhereDouble
from tests.support.insert_messages import message as insert_message
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.sessions import session

MANY = 2 * BATCHES_IN_A_TURN + 10
BROKEN = bson.encode({"m": 1})


def document(meta: int, second: int = 0) -> bytes:
    return bson.encode({"_id": meta, "t": bson.DatetimeMS(second * 1000), "m": meta})


class Ingest:
    """The handler over a scripted store."""

    def __init__(self, bench: CommitterBench | None = None, mode: Mode = "catalog", **limits: int) -> None:
        self.bench = bench or CommitterBench()
        self.replies: list[dict[str, Any]] = []
        self.handler = InsertHandler(
            self.bench.catalog,
            self.bench.committer,
            StatementLog(),
            max_pending_bytes=limits.pop("max_pending_bytes", 1 << 20),
            retryable_writes=True,
            strategy=WriteStrategy(mode, time.monotonic),
            # No time passes, so that pauses come where the test says.
            slices=Slices(lambda: 0.0),
            **limits,
        )

    def insert(self, *documents: bytes, ordered: bool = True, txn_number: int | None = None) -> None:
        statements = None if txn_number is None else range(len(documents))
        size_bytes = sum(map(len, documents))
        insert = InsertCommand(documents, ordered, b"", b"session", txn_number, statements, True, size_bytes)
        reply = Recipient(lambda raw, _: self.replies.append(bson.decode(raw or b"")), session())
        self.handler.take(insert, self.bench.virtual, NOBODY, reply)

    def insert_one(self, raw: bytes, txn_number: int | None = None) -> FakeClient:
        client = FakeClient()
        command = InsertCommand((b"",), True, b"", b"session", None, None, True, 0)
        repeated = InsertTemplate(self.handler, command, self.bench.virtual)
        exchange = Exchange(session(), client, Message.from_bytes(insert_message(raw)), Told())
        self.handler.submit(exchange, repeated, (raw,), b"session", txn_number)
        return client

    async def rest(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await self.bench.rest()
        assert (self.handler.pending.size_bytes, self.handler.pending.measurements) == (0, 0)

    @property
    def sent(self) -> list[int]:
        return [len(statements) for _, statements, _ in self.bench.store.sent]


@pytest.mark.parametrize("txn_number", [None, 2])
async def test_a_command_of_many_buckets_leaves_in_pieces(txn_number: int | None) -> None:
    """The backend works on the first while the rest is staged; the client hears once, of all."""
    ingest = Ingest()
    if txn_number is not None:
        # The first command of a session is looked for in the backend first.
        ingest.insert(document(-1), txn_number=1)
        await ingest.rest()
        await asyncio.sleep(GIVES_WAY_SECONDS)
        ingest.replies.clear()
        ingest.bench.store.sent.clear()
    ingest.insert(*map(document, range(MANY)), txn_number=txn_number)
    assert ingest.replies == []
    await ingest.rest()
    assert ingest.replies == [{"n": MANY, "ok": 1.0}]
    assert ingest.sent[0] == BATCHES_IN_A_TURN
    assert sum(ingest.sent) == MANY


async def test_pieces_are_small_and_follow_each_other_while_others_insert() -> None:
    ingest = Ingest()
    ingest.insert(document(-1))
    ingest.insert(*map(document, range(MANY)))
    await ingest.rest()
    assert ingest.sent[0] == 1
    assert max(ingest.sent) == GIVING_WAY.statements
    assert sum(ingest.sent) == MANY + 1


async def test_a_command_of_one_bucket_leaves_in_one_piece() -> None:
    ingest = Ingest()
    ingest.insert(*(document(1, second) for second in range(MANY)))
    await ingest.rest()
    assert ingest.sent == [1]
    assert ingest.replies == [{"n": MANY, "ok": 1.0}]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_document_that_is_refused_after_a_pause(ordered: bool) -> None:
    """W90, W95: an ordered command ends there, an unordered one goes on."""
    ingest = Ingest()
    documents = [document(meta) for meta in range(MANY)]
    documents[BATCHES_IN_A_TURN + 5] = BROKEN
    ingest.insert(*documents, ordered=ordered)
    await ingest.rest()
    (reply,) = ingest.replies
    assert reply["n"] == (BATCHES_IN_A_TURN + 5 if ordered else MANY - 1)
    assert [error["index"] for error in reply["writeErrors"]] == [BATCHES_IN_A_TURN + 5]


async def test_a_retry_in_the_middle_writes_nothing_twice() -> None:
    """W102: the second copy waits for what the first has staged and stages the rest itself."""
    ingest = Ingest()
    for _ in range(2):
        ingest.insert(*map(document, range(MANY)), txn_number=1)
    await ingest.rest()
    assert ingest.replies == [{"n": MANY, "ok": 1.0}] * 2
    assert sum(ingest.sent) == MANY


async def test_a_collection_that_is_dropped_in_a_pause_is_forgotten() -> None:
    """W72: what comes after goes to a new state of the collection."""
    ingest = Ingest()
    ingest.insert(*map(document, range(MANY)))
    ingest.bench.catalog.drop(ingest.bench.virtual.namespace)
    await ingest.rest()
    assert ingest.bench.buckets.replaced
    assert len(ingest.bench.catalog.collection(ingest.bench.virtual).series) == MANY - BATCHES_IN_A_TURN
    assert ingest.replies == [{"n": MANY, "ok": 1.0}]


async def test_one_document_is_staged_and_answered() -> None:
    ingest = Ingest()
    stored, refused = ingest.insert_one(document(1)), ingest.insert_one(BROKEN)
    assert document_of(Message.from_bytes(refused.written[0]))["writeErrors"][0]["index"] == 0
    assert ingest.handler.pending.measurements == 1
    await ingest.rest()
    assert document_of(Message.from_bytes(stored.written[0])) == {"n": 1, "ok": 1.0}


def answer(client: FakeClient) -> dict[str, Any]:
    (raw,) = client.written
    return document_of(Message.from_bytes(raw))


async def test_one_retryable_document_is_written_once() -> None:
    """W102: a retry while it is under way, a retry of what was written, and one of a transaction that is over."""
    ingest = Ingest()
    first = [ingest.insert_one(document(1), 5) for _ in range(2)]
    await ingest.rest()
    second = [ingest.insert_one(document(2), 6) for _ in range(2)]
    await ingest.rest()
    again = ingest.insert_one(document(2), 6)
    too_old = ingest.insert_one(document(1), 5)
    refused = ingest.insert_one(BROKEN, 7)
    await ingest.rest()
    assert [answer(each) for each in (*first, *second, again)] == [{"n": 1, "ok": 1.0}] * 5
    assert answer(too_old)["code"] == 225
    assert answer(refused)["writeErrors"][0]["index"] == 0
    assert sum(ingest.sent) == 2


async def test_what_an_earlier_process_wrote_is_looked_for_first() -> None:
    ingest = Ingest()
    ingest.bench.store.documents[b"1"] = bson.encode(
        {
            "_id": bson.ObjectId(),
            "control": {"version": 1},
            "meta": 1,
            "data": {"_id": {"0": 1}, "t": {"0": bson.DatetimeMS(0)}},
        }
    )
    written = ingest.insert_one(document(1), 5)
    await ingest.rest()
    assert answer(written) == {"n": 1, "ok": 1.0}
    assert (ingest.sent, len(ingest.bench.store.asked)) == ([], 1)


FILLING = [document(0, second) for second in range(200)]
"""A large insert, into one bucket, over the limits of ``full``."""


def full(**options: Any) -> tuple[Ingest, HeldStore]:
    """Of which nothing more is taken than what the reserve is for: one small insert at least."""
    store = HeldStore()
    ingest = Ingest(CommitterBench(store=store, reopening=False, **options), max_pending_measurements=2)
    ingest.insert(*FILLING)
    return ingest, store


async def turns(ingest: Ingest) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limits", [{"max_pending_measurements": 2}, {"max_pending_bytes": 200}])
async def test_large_inserts_wait_while_too_much_is_pending(limits: dict[str, int]) -> None:
    """``max_pending_measurements`` and ``max_pending_bytes`` bound what is staged and not settled."""
    store = HeldStore()
    ingest = Ingest(CommitterBench(store=store), **limits)
    ingest.insert(*FILLING)
    ingest.insert(*FILLING[:150])
    await turns(ingest)
    assert ingest.handler.pending.measurements == 200
    store.gate.set()
    await ingest.rest()
    assert [reply["n"] for reply in ingest.replies] == [200, 150]


async def test_uncommitted_measurements_include_those_in_the_reserve() -> None:
    ingest, store = full()
    ingest.insert(document(9))
    await turns(ingest)
    assert ingest.handler.uncommitted() == (201, sum(map(len, FILLING)) + len(document(9)))
    store.gate.set()
    await ingest.rest()
    assert ingest.handler.uncommitted() == (0, 0)


async def test_small_inserts_go_on_while_too_much_is_pending() -> None:
    """Out of a reserve that has a bound of its own; what is beyond it waits, and all arrive."""
    ingest, store = full()
    others = [ingest.insert_one(document(meta)) for meta in range(1, 6)]
    await turns(ingest)
    assert sum(ingest.sent) == 2
    store.gate.set()
    await ingest.rest()
    assert [answer(each) for each in others] == [{"n": 1, "ok": 1.0}] * 5
    assert sum(ingest.sent) == 6


async def test_those_who_waited_too_long_are_turned_away() -> None:
    ingest, store = full(server_selection_timeout_seconds=0.0)
    taken, late = ingest.insert_one(document(1)), ingest.insert_one(document(2))
    await turns(ingest)
    store.gate.set()
    await ingest.rest()
    assert answer(taken)["n"] == 1
    assert answer(late)["code"] == 262


async def test_a_bug_is_reported_and_told() -> None:
    ingest = Ingest()

    def fail(*arguments: Any) -> None:
        raise KeyError("a bug")

    ingest.bench.catalog.place = fail  # type: ignore[method-assign]
    client = ingest.insert_one(document(1))
    ingest.insert(document(1))
    assert document_of(Message.from_bytes(client.written[0]))["writeErrors"][0]["code"] == 1
    assert ingest.replies[0]["code"] == 1
    assert [type(error) for error in ingest.bench.reported] == [KeyError, KeyError]
    await ingest.rest()


async def test_w102_an_insert_of_one_waits_for_the_answers_of_others() -> None:
    ingest = Ingest()
    elsewhere = ElsewhereDouble(5)
    ingest.handler.ask_others(elsewhere)
    written = ingest.insert_one(document(1), 5)
    await asyncio.sleep(0)
    assert (written.written, ingest.sent) == ([], [])
    assert ingest.handler.pending.measurements == 1
    ingest.handler.statements.transaction((b"session", NOBODY), 5).learn([(0, 1)], [], is_native=False, is_sought=False)
    elsewhere.answer()
    await ingest.rest()
    assert answer(written) == {"n": 1, "ok": 1.0}
    assert ingest.sent == []
    assert ingest.handler.statements.transaction((b"session", NOBODY), 5).commands == 0


@pytest.mark.parametrize("second", [0, 1])
async def test_w102_what_was_asked_about_just_now_is_not_asked_about_again(second: int) -> None:
    """Others have to be asked all the time while a process hangs."""
    ingest = Ingest()
    elsewhere = ElsewhereDouble(5)
    ingest.handler.ask_others(elsewhere)
    command = InsertCommand((b"",), True, b"", b"session", None, None, True, 0)
    template = InsertTemplate(ingest.handler, command, ingest.bench.virtual)
    client = session()
    client.answered_seconds = 17.0
    exchange = Exchange(client, FakeClient(), Message.from_bytes(insert_message(document(1))), Told())
    documents = tuple(document(1, each) for each in range(1 + second))
    ingest.handler.submit(exchange, template, documents, b"session", 5)
    elsewhere.answer(is_certain=False)
    assert elsewhere.waiting == []
    assert elsewhere.sent_seconds == [17.0]
    await ingest.rest()
    assert ingest.sent == [1]


async def test_w102_a_command_that_was_asked_about_early_is_staged_or_relayed_or_refused() -> None:
    for outcome in ("staged", "relayed", "refused"):
        ingest = Ingest()
        elsewhere = ElsewhereDouble(5)
        ingest.handler.ask_others(elsewhere)
        told = Told()
        exchange = Exchange(session(), FakeClient(), Message.from_bytes(insert_message(document(1))), told)
        command = InsertCommand((b"",), True, b"", b"session", None, None, True, 0)
        template = InsertTemplate(ingest.handler, command, ingest.bench.virtual)
        large = bson.encode({"t": bson.DatetimeMS(1), "m": 1, "text": "x" * FEWEST_BYTES})
        ingest.handler.submit(exchange, template, (large,), b"session", 5)
        assert ingest.handler.pending.measurements == 1
        if outcome == "relayed":
            ingest.handler.statements.transaction((b"session", NOBODY), 5).is_native = True
        elsewhere.answer(CommandError(225, "too old") if outcome == "refused" else None)
        await ingest.rest()
        kinds = [type(each).__name__ for each in told.outcomes]
        assert kinds == {"staged": [], "relayed": ["NotTranslatable"], "refused": ["Refused"]}[outcome]
        assert ingest.sent == ([1] if outcome == "staged" else [])


async def test_w102_other_processes_are_asked_before_the_backend_carries_an_insert_out() -> None:
    """Another process may have staged it."""
    ingest = Ingest(mode="native")
    told = Told()
    exchange = Exchange(session(), FakeClient(), Message.from_bytes(insert_message(document(1))), told)
    command = InsertCommand((b"",), True, b"", b"session", None, None, True, 0)
    template = InsertTemplate(ingest.handler, command, ingest.bench.virtual)
    row = document(1)
    # The first number of a session is looked for in the backend first.
    ingest.handler.statements.transaction((b"session", NOBODY), 4)

    def documents_to_relay() -> int:
        return ingest.handler.documents_to_relay(exchange, template, (row,), 0, len(row), b"session", 5)

    elsewhere = ElsewhereDouble(5)
    ingest.handler.ask_others(elsewhere)
    assert documents_to_relay() == 0
    ingest.handler.submit(exchange, template, (row,), b"session", 5)
    assert (len(elsewhere.waiting), told.outcomes) == (1, [])
    elsewhere.answer()
    assert [type(each).__name__ for each in told.outcomes] == ["NotTranslatable"]
    assert (documents_to_relay(), ingest.sent) == (1, [])


async def test_w102_what_only_the_backend_can_tell_is_sent_again_by_the_driver() -> None:
    ingest = Ingest()
    elsewhere = ElsewhereDouble(5)
    ingest.handler.ask_others(elsewhere)
    ingest.insert(document(1), document(2), txn_number=5)
    ingest.handler.statements.transaction((b"session", NOBODY), 5).is_native = True
    elsewhere.answer()
    await ingest.rest()
    assert ingest.replies[0]["errorLabels"] == ["RetryableWriteError"]
    assert ingest.sent == []
