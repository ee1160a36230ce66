"""Documents for the shared catalog; most of it is shown with the handler of inserts (test_ingest.py)."""

from __future__ import annotations

from collections.abc import Sequence

import bson
import pytest

from catalog.commit.statements import StatementLog
from proxy.inserts.catalog_staging import CatalogStaging
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.slices import Slices
from tests.support.catalog_parts import KEY
from tests.support.committer_bench import CommitterBench


async def replies_to(bench: CommitterBench, documents: Sequence[bytes], txn_number: int | None = None) -> list[object]:
    """Of one insert, with commits after each pause of its own; a clock that stands makes no others."""
    staging = CatalogStaging(bench.catalog, bench.committer, StatementLog(), Slices(lambda: 0.0))
    replies: list[bytes | None] = []
    numbers = None if txn_number is None else range(len(documents))
    insert = InsertCommand(documents, True, b"", b"s", txn_number, numbers, True, 0)
    reply = InsertReply(insert, lambda raw, _: replies.append(raw))
    for step in staging.stage(insert, bench.virtual, KEY, reply):
        if step is True:
            staging.kick()
            await bench.rest()
    reply.staged()
    staging.kick()
    await bench.rest()
    return [bson.decode(each or b"") for each in replies]


def document(time_ms: int, meta: int) -> bytes:
    return bson.encode({"t": bson.DatetimeMS(time_ms), "m": meta})


async def test_documents_become_batches_that_are_committed() -> None:
    bench = CommitterBench()
    assert await replies_to(bench, [document(1000, number) for number in range(3)]) == [{"n": 3, "ok": 1.0}]
    assert [len(statements) for _, statements, _ in bench.store.sent] == [3]


@pytest.mark.parametrize("txn_number", [None, 1])
async def test_a_large_insert_of_interleaved_rows_writes_its_buckets_once(txn_number: int | None) -> None:
    """Ten days in each of 60 series, one row of each after the other. A pause may divide a bucket's rows."""
    bench = CommitterBench()
    documents = [document((86_400 * (row % 10) + row // 10) * 1000, meta) for row in range(30) for meta in range(60)]
    assert await replies_to(bench, documents, txn_number) == [{"n": 1_800, "ok": 1.0}]
    assert sum(len(statements) for _, statements, _ in bench.store.sent) <= 600 + 1_800 // 250
