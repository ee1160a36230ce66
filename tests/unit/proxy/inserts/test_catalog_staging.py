"""Documents for the shared catalog; most of it is shown with the handler of inserts (test_ingest.py)."""

from __future__ import annotations

import bson

from catalog.statements import StatementLog
from proxy.inserts.catalog_staging import CatalogStaging
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.slices import Slices
from tests.support.catalog_parts import KEY
from tests.support.committer_bench import CommitterBench


async def test_documents_become_batches_that_are_committed() -> None:
    bench = CommitterBench()
    staging = CatalogStaging(bench.catalog, bench.committer, StatementLog(), Slices())
    replies: list[bytes | None] = []
    documents = [bson.encode({"t": bson.DatetimeMS(1000), "m": number}) for number in range(3)]
    insert = InsertCommand(documents, True, b"", b"", None, None, True, 0)
    reply = InsertReply(insert, lambda raw, _: replies.append(raw))
    for _ in staging.stage(insert, bench.virtual, KEY, reply):
        pass
    reply.staged()
    staging.kick()
    await bench.rest()
    assert [len(statements) for _, statements, _ in bench.store.sent] == [3]
    assert [bson.decode(each or b"") for each in replies] == [{"n": 3, "ok": 1.0}]
