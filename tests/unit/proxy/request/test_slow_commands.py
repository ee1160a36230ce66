from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from structlog.testing import capture_logs

from catalog.identity import identity_of
from proxy.observe.slow_numbers import SlowNumbers
from proxy.request.command import Command
from proxy.request.exchange import Exchange, encode
from proxy.request.naming import printable
from proxy.request.slow_commands import DESCRIBED_AT_ONCE, EVENT, SlowCommands
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command
from tests.support.sessions import session

OK = encode({"ok": 1.0})
FIND = {"find": "rows", "filter": {"m": "secret"}, "comment": "nightly", "$db": "weather"}


class Meter:
    def __init__(self, way: str) -> None:
        self.way = way

    def done(self, seconds: float, code: int = 0) -> None:
        pass


class Slow:
    """Every command is slow; the clock stands unless it is moved."""

    def __init__(self, *, shows_plans: bool = False, threshold_ms: float | None = 0.0) -> None:
        self.now_seconds = 0.0
        self.errors: list[BaseException] = []
        self.numbers = SlowNumbers()
        self.commands = SlowCommands(
            threshold_ms,
            self.numbers,
            self.errors.append,
            steps=self.steps,
            shows_plans=shows_plans,
            now_seconds=lambda: self.now_seconds,
        )
        self.session = session(identity_of([("ann", "admin")]))
        client = {"application": {"name": "weather\nstation"}}
        self.session.upstream.hello = bson.encode({"hello": 1, "client": client, "$db": "admin"})

    def steps(self, command: Command) -> Iterable[Mapping[str, Any]]:
        return [{"aggregate": command.name, "pipeline": [{"$match": {"meta": "secret"}}]}]

    def begin(self, document: Mapping[str, Any], way: str = "relay") -> Exchange:
        message = Message.from_bytes(command(document))
        exchange = Exchange(self.session, FakeClient(), message, Told(), self.commands.threshold)
        exchange.meter = Meter(way)
        return exchange

    def end(self, document: Mapping[str, Any], way: str = "relay", reply: bytes = OK) -> list[dict[str, Any]]:
        """The lines of one command that ends."""
        with capture_logs() as logs:
            self.begin(document, way).reply(reply)
        assert self.errors == []
        return [dict(line) for line in logs]


def test_a_line_says_who_and_what() -> None:
    slow = Slow()
    (line,) = slow.end(FIND)
    assert {
        name: line[name] for name in ("event", "namespace", "command", "way", "application", "user", "comment")
    } == {
        "event": EVENT,
        "namespace": "weather.rows",
        "command": "find",
        "way": "relay",
        "application": "weather\\nstation",
        "user": "ann@admin",
        "comment": "nightly",
    }
    assert (line["peer"], line["connection"], line["outcome"]) == ("peer", 1, "ok")
    assert (line["bytes_in"], line["bytes_out"]) == (len(command(FIND)), len(OK) + op_msg.BODY_AT)
    assert line["shape"] == "{find: string, filter: {m: string}}"
    assert line["duration_ms"] == pytest.approx(line["proxy_ms"] + line["backend_ms"], abs=0.001)
    assert "rewritten" not in line
    (kept,) = slow.commands.ring.latest(10)
    assert kept.values == {name: value for name, value in line.items() if name not in ("event", "log_level")}
    assert slow.numbers.comments.items() == [("nightly", 1)]
    assert slow.numbers.applications.items() == [("weather\\nstation", 1)]


def test_plans_are_shown_on_request() -> None:
    (line,) = Slow(shows_plans=True).end(FIND, "translate")
    assert line["rewritten"] == ["{aggregate: string, pipeline: [{$match: {meta: string}}]}"]
    slow = Slow(shows_plans=True)
    exchange = slow.begin(FIND, "translate")
    exchange.times().step({"delete": "x", "deletes": [{"q": {"_id": ObjectId()}}]})
    with capture_logs() as logs:
        exchange.reply(OK)
    assert logs[0]["rewritten"] == ["{delete: string, deletes: [{q: {_id: objectId}}]}"]
    assert "rewritten" not in Slow(shows_plans=True).end(FIND)[0]


@pytest.mark.parametrize(
    ("document", "reply", "way"),
    [
        ({"hello": 1, "$db": "admin"}, {"ok": 1.0}, "answer"),
        (
            {"getMore": Int64(7), "collection": "rows", "$db": "d"},
            {"cursor": {"nextBatch": [], "id": Int64(7), "ns": "d.rows"}, "ok": 1.0},
            "relay",
        ),
    ],
)
def test_waiting_for_changes_is_not_slow(document: dict[str, Any], reply: dict[str, Any], way: str) -> None:
    slow = Slow()
    assert slow.end(document, way, encode(reply)) == []
    assert len(slow.commands.ring) == 0


def test_an_insert_that_is_relayed_waits_for_no_commit() -> None:
    slow = Slow()
    staged, relayed = (slow.begin({"insert": "rows", "$db": "d"}, "ingest") for _ in range(2))
    relayed.sent()
    with capture_logs() as logs:
        staged.reply(OK)
        relayed.reply(OK)
    assert ["commit_ms" in line for line in logs] == [True, False]
    assert logs[1]["backend_ms"] > 0


def test_the_namespace_of_a_cursor_is_its_collection() -> None:
    (line,) = Slow().end({"getMore": Int64(7), "collection": "rows", "$db": "weather"})
    assert (line["namespace"], line["command"]) == ("weather.rows", "getMore")
    (line,) = Slow().end({"ping": 1, "$db": "admin"})
    assert line["namespace"] == "admin"


def test_a_client_that_leaves_is_reported_once() -> None:
    slow = Slow()
    exchange = slow.begin(FIND)
    with capture_logs() as logs:
        exchange.abandon()
        exchange.reply(OK)
    assert [line["outcome"] for line in logs] == ["disconnected"]
    with capture_logs() as logs:
        slow.begin({"getMore": Int64(7), "collection": "rows", "$db": "d"}).abandon()
    assert logs == []


def test_the_threshold_may_change() -> None:
    slow = Slow(threshold_ms=None)
    assert slow.end(FIND) == []
    slow.commands.set_threshold_ms(0.0)
    assert len(slow.end(FIND)) == 1
    slow.commands.set_threshold_ms(60_000)
    assert slow.end(FIND) == []
    assert slow.numbers.threshold_seconds is not None
    assert slow.numbers.threshold_seconds() == 60.0


def test_a_limited_number_is_described_and_all_are_counted() -> None:
    slow = Slow()
    with capture_logs() as logs:
        for number in range(10_000):
            slow.begin({**FIND, "comment": f"number {number}"}).reply(OK)
    assert len(logs) == DESCRIBED_AT_ONCE
    assert slow.numbers.not_logged == 10_000 - DESCRIBED_AT_ONCE
    comments = slow.numbers.comments.items()
    assert (len(comments), sum(count for _, count in comments)) == (101, 10_000)
    slow.now_seconds += 1.0
    (line,) = slow.end(FIND)
    assert line["not_logged_before"] == 10_000 - DESCRIBED_AT_ONCE
    assert len(slow.commands.ring) == DESCRIBED_AT_ONCE + 1
    assert slow.errors == []


def test_the_ring_is_bounded_under_long_comments() -> None:
    slow = Slow()
    for number in range(5_000):
        slow.now_seconds += 1.0
        slow.begin({**FIND, "comment": f"{number}" + "ß" * 1_000}).reply(OK)
    assert slow.commands.ring.size_bytes <= 1 << 20
    assert 0 < len(slow.commands.ring) < 1_000


@pytest.mark.parametrize(
    ("comment", "shown"),
    [
        ({"a": [1, "x"]}, '{"a": [1, "x"]}'),
        (7, "7"),
        ("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
        ("x" * 1_000, "x" * 256 + "…"),
        ({"a": "x" * 100_000}, None),
    ],
)
def test_comments_of_any_type(comment: object, shown: str | None) -> None:
    (line,) = Slow().end({**FIND, "comment": comment})
    assert line.get("comment") == shown


def test_an_unknown_command_is_shown_but_no_label() -> None:
    slow = Slow()
    (line,) = slow.end({"invented" * 100: 1, "$db": "d"})
    assert line["command"].startswith("inventedinvented")
    assert len(line["command"]) <= 257
    assert [
        family.samples[0].labels for family in slow.numbers.collect() if family.name == "tsproxy_slow_commands"
    ] == [{"command": "other", "way": "relay"}]


def test_errors_of_the_log_are_reported_and_reach_no_client() -> None:
    slow = Slow(shows_plans=True)

    def steps(command: Command) -> Iterable[Mapping[str, Any]]:
        raise ZeroDivisionError

    slow.commands = SlowCommands(0.0, slow.numbers, slow.errors.append, steps=steps, shows_plans=True)
    slow.begin(FIND, "translate").reply(OK)
    assert [type(error) for error in slow.errors] == [ZeroDivisionError]


@pytest.mark.parametrize("way", ["relay", "translate", "ingest", "answer"])
def test_damaged_commands_and_replies_are_no_internal_errors(way: str) -> None:
    slow, chance = Slow(shows_plans=True), random.Random(5)
    commands = [
        {**FIND, "lsid": {"id": b"x" * 16}},
        {"getMore": Int64(7), "collection": "rows", "comment": {"a": [1, "x"]}, "$db": "d"},
        {"insert": "rows", "documents": [{"a": 1}, {"b": "x"}], "$db": "d"},
    ]
    replies = [OK, encode({"cursor": {"nextBatch": [{"a": 1}], "id": Int64(7), "ns": "d.c"}, "ok": 1.0})]
    for number in range(3_000):
        slow.now_seconds += 1.0
        raw, reply = bytearray(command(commands[number % 3])), bytearray(replies[number % 2])
        for changed, start in ((raw, 16), (reply, 0)):
            for _ in range(chance.randrange(4)):
                changed[chance.randrange(start, len(changed))] = chance.randrange(256)
        message = Message.from_bytes(bytes(raw))
        exchange = Exchange(slow.session, FakeClient(), message, Told(), slow.commands.threshold)
        exchange.meter = Meter(way)
        with capture_logs():
            if number % 5:
                exchange.reply(bytes(reply))
            else:
                exchange.relayed(op_msg.build(1, 2, bytes(reply)))
    assert slow.errors == []


def test_new_collections_are_kept_too() -> None:
    slow = Slow()
    slow.commands.record("d.rows", "an insert creates an ordinary collection")
    (kept,) = slow.commands.ring.latest(1)
    assert kept.as_document() == {
        "at": kept.at,
        "event": "an insert creates an ordinary collection",
        "namespace": "d.rows",
        "command": "insert",
    }


def test_text_is_on_one_line() -> None:
    assert printable("a\r\n\u2028\tß") == "a\\r\\n\\u2028\\tß"
