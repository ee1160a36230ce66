"""Documents for coalesced inserts: not parsed; statements are recognised, also those of an earlier process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import bson
import pytest

from catalog.commit.committer import CommitterOptions
from catalog.commit.precedence import Precedence
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import StatementLog
from catalog.errors import CommandError
from proxy.inserts.coalescing import Coalescer
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.native_staging import NativeStaging
from proxy.inserts.slices import Slices
from tests.support.catalog_parts import KEY, ManualClock, virtual
from tests.support.committer_bench import LoopClock
from tests.support.earlier_rows import EarlierRows
from tests.support.native_store import NativeStoreDouble
from tests.support.ownership import not_shared

NO_TIME = bson.encode({"m": 1})


def document(number: int) -> bytes:
    return bson.encode({"_id": bson.ObjectId(), "t": bson.DatetimeMS(1000 * number), "m": number})


class Bench:
    """Staging over a scripted store."""

    def __init__(self, *stored: bytes, window_seconds: float = 0.0) -> None:
        self.store, self.rows = NativeStoreDouble(), EarlierRows(*stored)
        self.coalescer = Coalescer(
            self.store, LoopClock(), CommitterOptions, lambda error: None, Precedence(LoopClock()), not_shared()
        )
        self.tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            self.tasks.append(asyncio.get_running_loop().create_task(work))

        dedup = RestartDedup(self.rows, ManualClock(), window_seconds, 1.0, spawn)
        self.staging = NativeStaging(self.coalescer, StatementLog(), dedup, Slices())

    async def insert(self, *documents: bytes, txn_number: int | None = None) -> dict[str, Any]:
        replies: list[dict[str, Any]] = []
        numbers = None if txn_number is None else range(len(documents))
        insert = InsertCommand(documents, False, b"", b"s", txn_number, numbers, True, 0)
        reply = InsertReply(insert, lambda raw, _: replies.append(bson.decode(raw or b"")))
        for _ in self.staging.stage(insert, virtual(), KEY, reply):
            pass
        reply.staged()
        self.staging.kick()
        await asyncio.gather(*self.tasks)
        assert await self.coalescer.drain(5.0)
        (said,) = replies
        return said


@pytest.mark.parametrize("txn_number", [None, 3])
async def test_documents_are_sent_as_they_came(txn_number: int | None) -> None:
    bench, documents = Bench(), [document(1), NO_TIME]
    assert await bench.insert(*documents, txn_number=txn_number) == {"n": 2, "ok": 1.0}
    assert bench.store.sent == [documents]


async def test_w102_a_retry_is_answered_and_an_older_number_refused() -> None:
    bench, rows = Bench(), [document(1), document(2)]
    for _ in range(2):
        assert await bench.insert(*rows, txn_number=3) == {"n": 2, "ok": 1.0}
    assert len(bench.store.sent) == 1
    with pytest.raises(CommandError) as refused:
        await bench.insert(*rows, txn_number=2)
    assert refused.value.code == 225


async def test_w102_what_an_earlier_process_has_stored_is_not_sent() -> None:
    old, new = document(1), document(2)
    bench = Bench(old, window_seconds=60.0)
    assert await bench.insert(old, new, NO_TIME, txn_number=3) == {"n": 3, "ok": 1.0}
    # What the server will refuse is not looked for.
    assert sorted(each for sent in bench.store.sent for each in sent) == sorted([new, NO_TIME])


async def test_w102_nothing_is_sent_if_the_stored_rows_cannot_be_read() -> None:
    bench = Bench(window_seconds=60.0)
    bench.rows.fails = True
    reply = await bench.insert(document(1), txn_number=3)
    assert (reply["writeErrors"][0]["code"] if "writeErrors" in reply else reply["code"]) == 6
    assert bench.store.sent == []
