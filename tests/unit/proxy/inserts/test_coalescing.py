"""Inserts of many writers as few native ones: who shares a command, its results, and what follows a lost reply."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from catalog.buckets.write_batch import CombineKey
from catalog.commit.committer import CommitterOptions
from catalog.commit.precedence import Precedence
from catalog.commit.round import RoundLimits
from catalog.commit.statements import Statement, StatementLog, Transaction
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import identity_of
from catalog.ports import Acknowledgement, Applied, Rejected, Unknown
from proxy.inserts.coalescing import AGAIN_DOCUMENTS, WHOLE_ALONE_DOCUMENTS, Coalescer
from tests.support.catalog_parts import KEY, ManualClock, RememberingWriter, virtual
from tests.support.committer_bench import Behind, LoopClock
from tests.support.eventually import eventually
from tests.support.native_store import NativeStoreDouble
from tests.support.ownership import not_shared
from tests.support.still_clock import clock_stands_still

LOST = Unknown(BackendUnavailable("connection closed"))
CLIENT = (b"session", KEY.identity)


class Bench:
    """A coalescer over a scripted store."""

    def __init__(self, *answers: Any, repeatable: bool = True, **options: Any) -> None:
        self.store = NativeStoreDouble(*answers, repeatable=repeatable)
        self.reported: list[BaseException] = []
        self.options = CommitterOptions(**options)
        self.coalescer = Coalescer(
            self.store, LoopClock(), lambda: self.options, self.reported.append, Precedence(LoopClock()), not_shared()
        )

    def insert(self, *documents: bytes, key: CombineKey = KEY, writer: Any = None, is_bulk: bool = False) -> Any:
        writer = writer or RememberingWriter()
        for index, document in enumerate(documents):
            self.coalescer.add(virtual(), key, writer, index, document, is_bulk=is_bulk)
        return writer

    async def rest(self) -> None:
        async with asyncio.timeout(20):
            assert await self.coalescer.drain()
        assert self.coalescer.documents_ready == 0


async def test_inserts_of_one_moment_share_a_command() -> None:
    bench = Bench()
    writers = [bench.insert(b"%d" % number) for number in range(5)]
    await bench.rest()
    assert bench.store.sent == [[b"0", b"1", b"2", b"3", b"4"]]
    assert [writer.codes for writer in writers] == [{0: None}] * 5
    assert (bench.coalescer.metrics.commands, bench.coalescer.metrics.measurements) == (1, 5)


async def test_a_round_includes_what_clients_send_when_they_have_their_replies() -> None:
    behind = Behind()
    bench = Bench(behind_replies=behind)
    for document in (b"a", b"b", b"c"):
        bench.insert(document)
        await asyncio.sleep(0)
    assert bench.store.sent == []
    behind.written()
    await bench.rest()
    bench.insert(b"d")
    await bench.rest()
    assert bench.store.sent == [[b"a", b"b", b"c"], [b"d"]]


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (64, [64]), (128, [64, 64]), (200, [64, 64, 64, 8]), (1_000, [250] * 4)]
)
async def test_many_documents_are_divided_among_rounds(count: int, sizes: list[int]) -> None:
    bench = Bench()
    bench.store.gate.clear()
    bench.insert(*(b"%d" % number for number in range(count)))
    for _ in range(8):
        await asyncio.sleep(0)
    assert [len(documents) for documents in bench.store.sent] == sizes, "all are in progress at the same time"
    bench.store.gate.set()
    await bench.rest()
    assert len(bench.store.sent) == len(sizes)


async def test_what_comes_while_rounds_are_in_progress_joins_the_next() -> None:
    bench = Bench(rounds_in_flight=1)
    bench.store.gate.clear()
    bench.insert(b"a")
    await asyncio.sleep(0)
    bench.insert(b"b")
    await asyncio.sleep(0)
    for name in (b"c", b"d", b"e"):
        bench.insert(name)
        await asyncio.sleep(0)
    bench.store.gate.set()
    await bench.rest()
    assert bench.store.sent == [[b"a"], [b"b"], [b"c", b"d", b"e"]]


@pytest.mark.parametrize(
    ("others", "documents", "sent"),
    [
        (0, 8, [8]),
        (0, 16, [8, 8]),
        (0, 24, [8, 8, 8]),
        (0, 80, [20] * 4),
        (1, 16, [16]),
        (1, 32, [16, 16]),
        (3, 80, [32, 32, 16]),
        (3, 160, [40] * 4),
        (50, 128, [64, 64]),
    ],
)
async def test_more_documents_than_stay_whole_are_divided_among_rounds(
    others: int, documents: int, sent: list[int]
) -> None:
    """The more proxies send commands to the server, the larger they are."""
    store, clock = NativeStoreDouble(), ManualClock()
    coalescer = Coalescer(
        store,
        clock,
        CommitterOptions,
        lambda error: None,
        Precedence(clock),
        not_shared(),
        whole_documents=WHOLE_ALONE_DOCUMENTS,
    )
    coalescer.share_backend(others)
    store.gate.clear()
    for document in range(documents):
        coalescer.add(virtual(), KEY, RememberingWriter(), 0, b"%d" % document)
    await asyncio.sleep(0.01)
    store.gate.set()
    async with asyncio.timeout(20):
        assert await coalescer.drain()
    assert [len(each) for each in store.sent] == sent


async def test_each_round_has_the_patience_of_its_oldest_document() -> None:
    """However long other documents have been ready before."""
    store, clock = NativeStoreDouble(), ManualClock()
    options = CommitterOptions(rounds_in_flight=1, limits=RoundLimits(statements=1))
    coalescer = Coalescer(store, clock, lambda: options, lambda error: None, Precedence(clock), not_shared())
    began_seconds = clock.monotonic_seconds()
    store.gate.clear()
    for document in range(6):
        coalescer.add(virtual(), KEY, RememberingWriter(), 0, b"%d" % document)
        await asyncio.sleep(0)
        clock.now += 20
    store.gate.set()
    async with asyncio.timeout(20):
        assert await coalescer.drain()
    patience_seconds = [each - began_seconds for each in store.deadlines_seconds]
    assert patience_seconds == [20 * number + options.server_selection_timeout_seconds for number in range(6)]


@pytest.mark.parametrize(
    "other",
    [CombineKey(b"w", KEY.identity), CombineKey(b"", identity_of([("ann", "admin")]))],
    ids=["write concern", "identity"],
)
async def test_w70_other_writers_have_a_command_of_their_own(other: CombineKey) -> None:
    bench = Bench()
    bench.insert(b"a")
    bench.insert(b"b", key=other)
    bench.insert(b"c", is_bulk=True)
    await bench.rest()
    assert bench.store.sent == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.parametrize("limits", [RoundLimits(statements=2), RoundLimits(size_bytes=15)])
async def test_a_command_has_limits(limits: RoundLimits) -> None:
    bench = Bench(limits=limits)
    writer = bench.insert(*(b"%010d" % number for number in range(5)))
    await bench.rest()
    assert [len(documents) for documents in bench.store.sent] == [2, 2, 1]
    assert list(writer.codes) == [0, 1, 2, 3, 4]


NO_TIME = CommandError(2, "'t' must be present and contain a valid BSON UTC datetime value")
IN_BUCKET = CommandError(5930501, "Indexed measurement field contains an array value")


async def test_each_writer_gets_its_own_errors() -> None:
    """W68, W97: an ordered insert ends with the first error; what comes after it follows in an unordered one."""
    rest = Applied(2, {1: NO_TIME}, Acknowledgement(fields={"opTime": 2}))
    bench = Bench(Applied(5, {1: NO_TIME}, Acknowledgement(fields={"opTime": 1})), rest)
    first, second = bench.insert(b"a", b"b"), bench.insert(b"c", b"d", b"e")
    await bench.rest()
    assert bench.store.sent == [[b"a", b"b", b"c", b"d", b"e"], [b"c", b"d", b"e"]]
    assert bench.store.ordered == [True, False]
    assert (bench.store.numbers, bench.store.free) == ([1, 2], [1, 2])
    assert first.codes == {0: None, 1: 2}
    assert second.codes == {0: None, 1: 2, 2: None}
    assert [each and each.fields for each in first.acknowledgements] == [{"opTime": 1}, None]
    assert [each and each.fields for each in second.acknowledgements] == [{"opTime": 2}, None, {"opTime": 2}]
    assert bench.coalescer.metrics.measurements == 3


async def test_w66_what_an_unordered_command_refuses_may_be_refused_because_of_others() -> None:
    """In order, each document has its own errors; those that were found before a bucket was are its own already."""
    bench = Bench(
        Applied(6, {0: IN_BUCKET}, Acknowledgement()),
        Applied(1, {0: NO_TIME, 2: IN_BUCKET, 3: IN_BUCKET, 4: IN_BUCKET}, Acknowledgement()),
        Applied(1, {1: IN_BUCKET}, Acknowledgement()),
    )
    writers = [bench.insert(document) for document in (b"bad", b"early", b"b", b"c", b"bad", b"d")]
    await bench.rest()
    assert bench.store.sent[2:] == [[b"c", b"bad", b"d"], [b"d"]]
    assert bench.store.ordered == [True, False, True, True]
    assert bench.store.numbers == bench.store.free == [1, 2, 3, 4]
    assert [writer.codes[0] for writer in writers] == [5930501, 2, None, None, 5930501, None]
    assert bench.coalescer.metrics.measurements == 3


async def test_w66_many_refused_documents_are_not_all_sent_again_at_each_error() -> None:
    refused = Applied(0, dict.fromkeys(range(2 * AGAIN_DOCUMENTS + 1), IN_BUCKET), Acknowledgement())
    bench = Bench(LOST, refused)
    writer = bench.insert(*(b"%d" % number for number in range(2 * AGAIN_DOCUMENTS + 1)))
    await bench.rest()
    assert [len(documents) for documents in bench.store.sent[2:]] == [AGAIN_DOCUMENTS, AGAIN_DOCUMENTS, 1]
    assert set(writer.codes.values()) == {None}


async def test_w66_a_last_try_whose_reply_was_lost_is_the_last() -> None:
    bench = Bench(
        LOST, *(Applied(0, {0: IN_BUCKET}, Acknowledgement()), LOST) * 2, ending := Applied(1, {}, Acknowledgement())
    )
    writer = bench.insert(b"a")
    await bench.rest()
    assert bench.store.ordered == [True, False, True, False]
    assert (writer.codes, bench.store.answers) == ({0: 5930501}, [LOST, ending])


async def test_an_exception_in_a_later_command_leaves_no_writer_waiting() -> None:
    refused = Applied(0, dict.fromkeys(range(2 * AGAIN_DOCUMENTS), IN_BUCKET), Acknowledgement())
    bench = Bench(LOST, refused, RuntimeError("broken"))
    writer = bench.insert(*(b"%d" % number for number in range(2 * AGAIN_DOCUMENTS)))
    await bench.rest()
    assert set(writer.codes.values()) == {1}
    assert len(writer.codes) == 2 * AGAIN_DOCUMENTS


@pytest.mark.parametrize("documents", [(b"a",), (b"a", b"b", b"c")])
async def test_nothing_follows_an_error_of_the_last_document(documents: tuple[bytes, ...]) -> None:
    last = len(documents) - 1
    bench = Bench(Applied(len(documents), {last: NO_TIME}, Acknowledgement()))
    writer = bench.insert(*documents)
    await bench.rest()
    assert len(bench.store.sent) == 1
    assert bench.store.free == [1]
    assert writer.codes == {**dict.fromkeys(range(last)), last: 2}


async def test_the_outcome_of_what_follows_an_error_may_be_unknown() -> None:
    """It is asked for under its own number; what came before it is known."""
    bench = Bench(Applied(3, {0: NO_TIME}, Acknowledgement()), LOST, Applied(2, {}, Acknowledgement()))
    first, second = bench.insert(b"a"), bench.insert(b"b", b"c")
    await bench.rest()
    assert (bench.store.numbers, bench.store.ordered) == ([1, 2, 2], [True, False, False])
    assert (first.codes, second.codes) == ({0: 2}, {0: None, 1: None})


async def test_w127_a_command_whose_reply_was_lost_is_unordered() -> None:
    """So every document gets its own result, whatever the first copy has executed."""
    bench = Bench(LOST, Applied(2, {1: NO_TIME}, Acknowledgement()))
    writer = bench.insert(b"a", b"b", b"c")
    await bench.rest()
    assert (bench.store.numbers, bench.store.ordered) == ([1, 1], [True, False])
    assert writer.codes == {0: None, 1: 2, 2: None}


async def test_a_refusal_concerns_all() -> None:
    bench = Bench(Rejected(CommandError(13, "not authorized")))
    writers = bench.insert(b"a"), bench.insert(b"b")
    await bench.rest()
    assert [writer.codes for writer in writers] == [{0: 13}] * 2
    assert bench.store.free == [1]


async def test_w127_a_lost_reply_is_asked_for_again_under_the_same_number() -> None:
    not_sent = Rejected(BackendUnavailable("cannot reach the backend"))
    bench = Bench(LOST, not_sent, Applied(0, {0: NO_TIME}, Acknowledgement()))
    writer = bench.insert(b"a")
    await bench.rest()
    assert bench.store.numbers == [1, 1, 1]
    assert bench.store.free == [1], "another command may use the session now"
    assert writer.codes == {0: 2}
    assert bench.coalescer.metrics.unknown_outcomes == 1


async def test_w127_of_a_command_that_was_killed_a_part_may_be_stored() -> None:
    """It is sent again under its number: what was stored is not refused, nor stored twice by a retry."""
    bench = Bench(Rejected(CommandError(11601, "operation was interrupted")))
    writers = bench.insert(b"a"), bench.insert(b"b")
    await bench.rest()
    assert (bench.store.numbers, bench.store.ordered) == ([1, 1], [True, False])
    assert [writer.codes for writer in writers] == [{0: None}] * 2
    assert bench.store.free == [1]


@pytest.mark.parametrize("repeatable", [True, False])
async def test_w127_an_outcome_that_stays_unknown_is_told(repeatable: bool) -> None:
    """At once without retryable writes, as the server would; with them, when the writers have waited long enough."""
    bench = Bench(LOST, LOST, repeatable=repeatable, server_selection_timeout_seconds=0.0)
    writer = bench.insert(b"a")
    await bench.rest()
    assert len(bench.store.sent) == 1
    assert bench.store.free == []
    error = writer.told[0]
    assert error is not None
    assert "the outcome of this write is unknown" in error.message


def statement(writer: RememberingWriter) -> tuple[Transaction, Statement]:
    transaction = StatementLog().transaction(CLIENT, 1)
    made = Statement(transaction, 0)
    made.wait(writer, 0, 0.0)
    return transaction, made


async def test_w102_a_statement_that_may_be_sent_again_is_pursued_beyond_the_deadline() -> None:
    bench = Bench(LOST, LOST, LOST, server_selection_timeout_seconds=0.0)
    client, retry = RememberingWriter(), RememberingWriter()
    transaction, first = statement(client)
    bench.insert(b"a", writer=first)
    while not client.told:  # noqa: ASYNC110 - the retry must come in the next turn
        await asyncio.sleep(0)
    assert "unknown" in str(client.told[0])
    assert bench.coalescer.pursued()[0] == 1
    transaction.under_way[0].wait(retry, 0, LoopClock().monotonic_seconds() + 60)
    await bench.rest()
    assert retry.codes == {0: None}
    assert (0 in transaction.written, transaction.under_way) == (True, {})
    assert bench.store.numbers == [1] * 4
    assert bench.coalescer.pursued() == (0, 0)


async def test_w102_a_statement_whose_outcome_the_server_has_forgotten_is_lost() -> None:
    forgotten = Rejected(CommandError(217, "incomplete history"))
    bench = Bench(LOST, forgotten, server_selection_timeout_seconds=0.0)
    transaction, first = statement(RememberingWriter())
    bench.insert(b"a", writer=first)
    await bench.rest()
    assert (0 in transaction.written, 0 in transaction.lost) == (False, True)


async def test_a_reply_that_does_not_fit_is_an_internal_error() -> None:
    bench = Bench(Applied(1, {}, Acknowledgement()))
    writer = bench.insert(b"a", b"b")
    await bench.rest()
    assert len(bench.reported) == 1
    assert all("unknown" in str(error) for error in writer.told.values())


async def test_an_exception_does_not_leave_writers_waiting() -> None:
    bench = Bench(RuntimeError("broken"))
    writer = bench.insert(b"a")
    await bench.rest()
    assert (writer.codes, len(bench.reported)) == ({0: 1}, 1)


async def test_a_stop_that_has_used_up_its_time_cancels_inserts() -> None:
    bench = Bench()
    bench.store.gate.clear()
    writer = bench.insert(b"a")
    assert not await bench.coalescer.drain(0.01)
    assert writer.codes == {0: 91}


async def test_a_linger_waits_for_more() -> None:
    bench = Bench(linger_seconds=0.01)
    with clock_stands_still():
        bench.insert(b"a")
        for _ in range(5):
            await asyncio.sleep(0)
        bench.insert(b"b")
    await eventually(lambda: bench.store.sent)
    await bench.rest()
    assert bench.store.sent == [[b"a", b"b"]]


async def test_a_stop_waits_for_what_lingers() -> None:
    bench = Bench(linger_seconds=0.01)
    writer = bench.insert(b"a")
    assert await bench.coalescer.drain(5)
    assert (bench.store.sent, writer.codes) == ([[b"a"]], {0: None})
