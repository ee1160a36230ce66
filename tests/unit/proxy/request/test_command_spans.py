from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from proxy.request.command_spans import CommandSpans, backend_of
from proxy.request.command_trace import CommitTrace
from proxy.request.exchange import Exchange, encode
from proxy.request.slow_threshold import Ended, SlowThreshold
from proxy.request.times import NOT_SENT
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session
from tests.support.spans import InMemory

OK = encode({"ok": 1.0})
FIND = {"find": "rows", "filter": {"m": "secret"}, "$db": "weather"}
INSERT = {"insert": "rows", "documents": [{}, {}], "$db": "weather"}


class Meter:
    def __init__(self, way: str) -> None:
        self.way = way

    def done(self, seconds: float, code: int = 0) -> None:
        pass


class Traced:
    """Commands that are traced; ``slow`` are those that the slow log gets."""

    def __init__(self, sampler: Sampler = ALWAYS_ON, slow_seconds: float = math.inf) -> None:
        self.memory = InMemory(sampler)
        self.errors: list[BaseException] = []
        self.slow: list[Ended] = []
        threshold = SlowThreshold(slow_seconds, lambda _, ended: self.slow.append(ended))
        self.spans = CommandSpans(self.memory.tracing, threshold, self.errors.append)

    def begin(self, document: Mapping[str, Any], way: str = "relay") -> Exchange:
        exchange = Exchange(session(), FakeClient(), Message.from_bytes(command(document)), Told(), self.spans.watch)
        exchange.meter = Meter(way)
        return exchange

    async def ended(self) -> Mapping[str, Any]:
        found = await self.memory.ended()
        assert self.errors == []
        return found


async def test_a_command_is_described_without_values() -> None:
    traced = Traced()
    traced.spans.listens_on("127.0.0.1", 27018)
    traced.begin(FIND).reply(OK)
    spans = await traced.ended()
    found = dict(spans["find rows"].attributes)
    assert found.pop("tsproxy.proxy_ms") >= 0
    assert found.pop("tsproxy.backend_ms") >= 0
    assert found == {
        "db.system.name": "mongodb",
        "db.namespace": "weather",
        "db.collection.name": "rows",
        "db.operation.name": "find",
        "tsproxy.way": "relay",
        "client.address": "peer",
        "server.address": "127.0.0.1",
        "server.port": 27018,
    }
    assert spans["backend"].parent.span_id == spans["find rows"].context.span_id


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
async def test_what_drivers_send_on_their_own_has_no_span(name: str) -> None:
    traced = Traced()
    traced.begin({name: 1, "$db": "admin"}, "answer").reply(OK)
    assert await traced.ended() == {}


async def test_the_parts_of_a_rewritten_command() -> None:
    traced = Traced()
    exchange = traced.begin(FIND, "translate")
    exchange.sent_seconds = NOT_SENT
    times = exchange.times()
    times.was_rewritten(time.perf_counter())
    times.step({"aggregate": "system.views", "pipeline": []})
    with times.at_backend():
        pass
    exchange.reply(OK)
    spans = await traced.ended()
    assert set(spans) == {"find rows", "rewrite", "backend"}
    assert spans["backend"].attributes["db.operation.name"] == "aggregate"
    assert spans["backend"].attributes["db.collection.name"] == "system.views"
    whole = spans["find rows"]
    assert all(whole.start_time <= each.start_time <= each.end_time <= whole.end_time for each in spans.values())


@pytest.mark.parametrize("is_known", [True, False])
async def test_the_commit_of_an_insert_is_a_part_of_it(is_known: bool) -> None:
    traced = Traced()
    exchange = traced.begin(INSERT, "ingest")
    now = exchange.started_seconds
    commit = CommitTrace(traced.memory.tracing.commit("commit", 1, []))
    traced.spans.trace_of(exchange).committed_by(commit)
    if is_known:
        commit.sent_seconds, commit.answered_seconds = now + 0.001, now + 0.003
    exchange.reply(OK, Acknowledgement(sent_at_seconds=now + 0.001, answered_at_seconds=now + 0.003))
    commit.span.end("commit rows", 2, {})
    spans = await traced.ended()
    part, whole = spans["commit"], spans["insert rows"]
    assert set(spans) == {"insert rows", "commit", "commit rows"}
    assert part.end_time - part.start_time == pytest.approx(2_000_000, abs=1_000)
    for span in (part, whole):
        assert [link.context for link in span.links] == [spans["commit rows"].context]
    assert whole.attributes["db.operation.batch.size"] == 2


async def test_a_commit_without_an_answer_ends_with_its_insert() -> None:
    traced = Traced()
    exchange = traced.begin(INSERT, "ingest")
    commit = CommitTrace(traced.memory.tracing.commit("commit", 1, []))
    traced.spans.trace_of(exchange).committed_by(commit)
    exchange.refuse(CommandError(91, "stopping"))
    spans = await traced.ended()
    assert spans["commit"].start_time == spans["commit"].end_time == spans["insert rows"].end_time


@pytest.mark.parametrize(
    ("end", "code", "kind"),
    [
        (lambda exchange: exchange.refuse(CommandError(13, "no")), "13", "Unauthorized"),
        (lambda exchange: exchange.refuse(CommandError(54321, "no")), "54321", "Location54321"),
        (lambda exchange: exchange.close(), "6", "closed"),
        (lambda exchange: exchange.abandon(), None, "disconnected"),
        (lambda exchange: exchange.reply(encode({"ok": 0.0, "errmsg": "no code at all"})), None, "unknown"),
    ],
)
async def test_errors(end: Any, code: str | None, kind: str) -> None:
    traced = Traced()
    end(traced.begin(FIND))
    span = (await traced.ended())["find rows"]
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == kind
    assert span.attributes.get("db.response.status_code") == code


async def test_a_command_that_ends_after_its_client_has_left_has_one_span() -> None:
    traced = Traced()
    exchange = traced.begin(FIND)
    exchange.abandon()
    exchange.reply(OK)
    await traced.ended()
    assert traced.memory.numbers.exported == 2  # its part at the backend is the other


async def test_names_of_commands_are_those_of_the_table() -> None:
    traced = Traced()
    traced.begin({"x" * 999: 1, "$db": "weather"}).reply(OK)
    (span,) = [each for name, each in (await traced.ended()).items() if name != "backend"]
    assert span.name == "other weather"
    assert len(span.attributes["db.operation.name"]) == 257


async def test_what_is_not_sampled_is_not_recorded() -> None:
    traced = Traced(ALWAYS_OFF)
    traced.begin(FIND).reply(OK)
    assert await traced.ended() == {}


@pytest.mark.parametrize(("slow_seconds", "reported"), [(0.0, 1), (60.0, 0), (math.inf, 0)])
async def test_the_slow_log_has_its_own_threshold(slow_seconds: float, reported: int) -> None:
    traced = Traced(slow_seconds=slow_seconds)
    traced.begin(FIND).reply(OK)
    assert len(traced.slow) == reported
    assert "find rows" in await traced.ended()


def test_an_internal_error_is_reported_and_affects_nobody() -> None:
    traced = Traced(slow_seconds=0.0)
    exchange = traced.begin(FIND)
    exchange.meter = None
    exchange.times().trace = "no trace"  # type: ignore[assignment]
    exchange.reply(OK)
    assert [type(error) for error in traced.errors] == [AttributeError]
    assert len(traced.slow) == 1


@pytest.mark.parametrize(
    ("address", "server"),
    [("db.example:27017", ("db.example", 27017)), ("[::1]:5", ("::1", 5)), ("", None), ("/tmp/mongod.sock", None)],
)
def test_the_server_is_named_if_it_is_known(address: str, server: tuple[str, int] | None) -> None:
    found = backend_of(address)
    assert found["db.system.name"] == "mongodb"
    assert (found.get("server.address"), found.get("server.port")) == (server or (None, None))
