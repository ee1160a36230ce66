from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from catalog.commit.round import PreparedWrite
from catalog.commit.sending import Commit
from catalog.errors import CommandError
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Rejected, WriteConcern
from proxy.request.command_spans import CommandSpans
from proxy.request.commit_spans import MOST_LINKS, CommitSpans
from proxy.request.exchange import Exchange, encode
from proxy.request.slow_threshold import SlowThreshold
from proxy.wire.message import Message
from tests.support.catalog_parts import ACKNOWLEDGED, CatalogBench, RememberingWriter, measurement
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session
from tests.support.spans import InMemory

INSERT = {"insert": "rows", "documents": [{}], "$db": "weather"}


class Asking(RememberingWriter):
    """A writer that commands wait for."""

    def __init__(self, *origins: object) -> None:
        super().__init__()
        self._origins = origins

    def origins(self) -> Sequence[object]:
        return self._origins


class Commits:
    """Commits of inserts that are traced."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.memory = InMemory(sampler)
        self.errors: list[BaseException] = []
        self.bench = CatalogBench()
        slow = SlowThreshold(math.inf, lambda exchange, ended: None)
        self.commands = CommandSpans(self.memory.tracing, slow, self.errors.append)
        self.spans = CommitSpans(self.memory.tracing, self.commands, lambda: "db.example:27017", self.errors.append)

    def insert(self) -> Exchange:
        raw = Message.from_bytes(command(INSERT))
        return Exchange(session(), FakeClient(), raw, Told(), self.commands.watch)

    def commit(self, *writers: Asking) -> Commit:
        """One measurement of each writer, each in a bucket of its own."""
        writes = []
        for number, writer in enumerate(writers):
            (batch,) = self.bench.stage(measurement(meta=number), writer=writer)
            batch.claim()
            statement = self.bench.catalog.prepare(batch)
            assert statement is not None
            writes.append(PreparedWrite(batch, statement))
        return Commit(self.bench.virtual, WriteConcern(), writes, 0.0, 1.0)

    def run(self, commit: Commit, outcome: BulkOutcome | None = None, *, stored: bool = True) -> None:
        observed = self.spans.began(commit)
        if stored:
            self.bench.catalog.finish([write.batch for write in commit.writes], ACKNOWLEDGED)
        if observed is not None:
            observed.ended(outcome or Applied(len(commit.writes), {}, Acknowledgement(None, {}, None, 1.0, 2.0)))

    async def ended(self) -> Mapping[str, Any]:
        found = await self.memory.ended()
        assert self.errors == []
        return found


async def test_a_clock_that_is_set_back_makes_no_span_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits()
    commit = commits.commit(Asking(commits.insert()))
    observed = commits.spans.began(commit)
    assert observed is not None
    commits.bench.catalog.finish([write.batch for write in commit.writes], ACKNOWLEDGED)
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() - 3_600_000_000_000)
    observed.ended(Applied(1, {}, Acknowledgement(None, {}, None, 1.0, 2.0)))
    (span,) = (await commits.ended()).values()
    assert 0 <= span.end_time - span.start_time < 60_000_000_000


async def test_a_commit_and_its_inserts_are_linked() -> None:
    commits = Commits()
    one, other = commits.insert(), commits.insert()
    commits.run(commits.commit(Asking(one), Asking(one, other), Asking("no exchange"), Asking()))
    (trace,) = commits.commands.trace_of(one).commits
    assert (trace.sent_seconds, trace.answered_seconds) == (1.0, 2.0)
    one.reply(encode({"ok": 1.0}))
    spans = await commits.ended()
    name = f"commit {commits.bench.virtual.namespace.collection}"
    assert [link.context for link in spans["insert rows"].links] == [spans[name].context]
    assert len(spans[name].links) == 2
    assert spans[name].parent is None
    assert spans[name].status.status_code.name == "UNSET"
    assert dict(spans[name].attributes) == {
        "db.system.name": "mongodb",
        "server.address": "db.example",
        "server.port": 27017,
        "db.namespace": commits.bench.virtual.namespace.database,
        "db.collection.name": commits.bench.virtual.namespace.collection,
        "db.operation.name": "insert",
        "tsproxy.commit.buckets": 4,
        "tsproxy.commit.measurements": 4,
        "tsproxy.commit.inserts": 2,
    }


async def test_links_are_bounded() -> None:
    commits = Commits()
    inserts = [commits.insert() for _ in range(MOST_LINKS + 10)]
    commits.run(commits.commit(Asking(*inserts)))
    assert all(len(commits.commands.trace_of(each).commits) == 1 for each in inserts)
    (span,) = (await commits.ended()).values()
    assert len(span.links) == MOST_LINKS
    assert span.attributes["tsproxy.commit.inserts"] == MOST_LINKS + 10


async def test_a_commit_of_inserts_that_are_not_sampled_is_not_recorded() -> None:
    commits = Commits(ALWAYS_OFF)
    commits.run(commits.commit(Asking(commits.insert())))
    assert await commits.ended() == {}


async def test_an_insert_that_has_ended_is_not_linked() -> None:
    commits = Commits()
    insert = commits.insert()
    insert.abandon()
    commits.run(commits.commit(Asking(insert)))
    assert [name for name in await commits.ended() if name.startswith("commit")] == []


@pytest.mark.parametrize(("outcome", "kind"), [(Rejected(CommandError(13, "no")), "Unauthorized"), (None, "abandoned")])
async def test_a_commit_that_fails_is_an_error(outcome: BulkOutcome | None, kind: str) -> None:
    commits = Commits()
    observed = commits.spans.began(commits.commit(Asking(commits.insert())))
    assert observed is not None
    observed.ended(outcome)
    (span,) = (await commits.ended()).values()
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == kind
    assert span.attributes["tsproxy.commit.buckets_not_written"] == 1


def test_an_internal_error_is_reported_and_affects_nobody() -> None:
    commits = Commits()
    writer = Asking(commits.insert())
    commit = commits.commit(writer)
    writer.origins = None  # type: ignore[assignment]
    assert commits.spans.began(commit) is None
    assert [type(error) for error in commits.errors] == [TypeError]
