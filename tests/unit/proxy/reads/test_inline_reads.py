"""What reads become is tested in tests/unit/rewrite and tests/differential; here is how they are sent."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Binary, Int64

from proxy.request.attempt import Deposed, Lost, NeedsTranslation, Streamed, Unexpected
from proxy.wire import op_msg
from proxy.wire.message import Message
from rewrite.profile import Profile
from tests.support.inline_reads import BUCKETS, Reads, cursor_reply
from tests.support.raw_wire import body, command, document_of, op_msg_bytes, sequence, with_checksum
from tests.support.scopes import TARGET

LSID = {"id": Binary(bytes([7] * 16), 4)}
OTHER_LSID = {"id": Binary(bytes([8] * 16), 4)}
FIND: dict[str, Any] = {"find": "x", "filter": {"m": 1}, "lsid": LSID, "$db": "db"}


@pytest.mark.parametrize("size", [1, 50, 1_000_000])
def test_read_goes_to_the_buckets_and_its_reply_has_its_own_name(size: int) -> None:
    """Q1, C23; asked again it is the same but for its session."""
    reads = Reads()
    for lsid in (LSID, LSID, OTHER_LSID):
        assert reads.start(command({**FIND, "lsid": lsid}))
        reply = reads.answer(cursor_reply(9), size)
        assert reply is not None
        assert reads.client.finished == 1
        assert reply["cursor"] == {"firstBatch": [{"a": 1}], "id": 9, "ns": "db.x"}
    assert reads.cursors.backend_namespace(9) == TARGET.buckets
    first, second, third = reads.sent
    assert first == second == {**third, "lsid": LSID}
    assert (first["aggregate"], first["lsid"], first["$db"]) == ("system.buckets.x", LSID, "db")
    assert third["lsid"] == OTHER_LSID


def test_counts_are_told_in_their_own_form() -> None:
    """C26."""
    reads = Reads()
    for _ in range(2):
        assert reads.start(command({"count": "x", "$db": "db"}))
        reply = {"cursor": {"firstBatch": [{"count": 5}], "id": Int64(0), "ns": BUCKETS}, "ok": 1.0}
        assert reads.answer(reply) == {"n": 5, "ok": 1}


def test_more_of_a_cursor_is_asked_for_by_the_name_of_the_buckets() -> None:
    """C23."""
    reads = Reads()
    reads.cursors.opened(9, TARGET.buckets)
    more = {"getMore": Int64(9), "collection": "x", "batchSize": 5, "lsid": LSID, "$db": "db"}
    for left in (9, 0):
        assert reads.start(command(more), None)
        assert reads.sent[-1] == {**more, "collection": "system.buckets.x"}
        reply = reads.answer(cursor_reply(left, "nextBatch"))
        assert reply is not None
        assert reply["cursor"]["ns"] == "db.x"
    assert reads.cursors.backend_namespace(9) is None
    assert not reads.start(command(more), None)


@pytest.mark.parametrize(
    ("raw", "allowed"),
    [
        (command(FIND), None),
        (command(FIND, flags=2), True),
        (command({**FIND, "tailable": True}), True),
        (command({"explain": {"find": "x"}, "$db": "db"}), True),
        (command({"update": "x", "updates": [], "$db": "db"}), True),
        (op_msg_bytes(body({"aggregate": "x", "cursor": {}, "$db": "db"}), sequence("pipeline", {"$limit": 1})), True),
        (command({"aggregate": "x", "pipeline": [{"$geoNear": {}}], "cursor": {}, "$db": "db"}), True),
    ],
)
def test_what_is_particular_goes_the_long_way(raw: bytes, allowed: bool | None) -> None:
    reads = Reads()
    reads.allowed = allowed
    assert not reads.start(raw)
    assert reads.transport.written == []


def test_cursor_of_another_collection_goes_the_long_way() -> None:
    """C23."""
    reads = Reads()
    reads.cursors.opened(9, TARGET.buckets)
    assert not reads.start(command({"getMore": Int64(9), "collection": "y", "$db": "db"}), None)


def test_connection_that_is_not_open_yet_goes_the_long_way() -> None:
    reads = Reads()
    reads.connection.close()
    assert not reads.start(command(FIND))


def test_refused_read_is_tried_as_its_client_sent_it() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    assert reads.answer({"ok": 0.0, "errmsg": "not authorized", "code": 13}) is None
    assert reads.told.outcomes == [NeedsTranslation(TARGET)]


def test_guess_that_fails_goes_the_long_way() -> None:
    """H4."""
    reads = Reads()
    error = {"ok": 0.0, "errmsg": "no number", "code": 241}
    assert reads.start(command({"aggregate": "x", "pipeline": [{"$count": "n"}], "cursor": {}, "$db": "db"}))
    assert reads.answer(error) is None
    assert reads.outcomes == [NeedsTranslation]
    assert reads.start(command(FIND))
    assert reads.answer(error) == error


def test_other_errors_are_the_clients() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    error = {"ok": 0.0, "errmsg": "no", "code": 2}
    assert reads.answer(error) == error


def test_backend_that_goes_away_is_told() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    reads.connection.connection_lost(None)
    assert reads.told.outcomes == [Lost()]
    assert reads.client.written == []


def test_server_that_is_primary_no_more_is_told() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    error = {"ok": 0.0, "errmsg": "not primary", "code": 10107}
    assert reads.answer(error) == error
    assert reads.told.outcomes == [Deposed(bson.encode(error))]


def test_reply_that_is_none_is_told() -> None:
    reads = Reads()
    assert reads.start(command({"count": "x", "$db": "db"}))
    assert reads.answer({"ok": 1.0}) is None
    (outcome,) = reads.told.outcomes
    assert isinstance(outcome, Unexpected)
    assert isinstance(outcome.error, KeyError)


def test_plan_follows_the_collection_and_the_backend() -> None:
    reads = Reads()
    for _ in range(2):
        assert reads.start(command(FIND))
        reads.answer(cursor_reply(0))
    reads.profile = Profile(version=(5, 0, 4))
    assert reads.start(command(FIND))
    assert reads.sent[0] == reads.sent[1] != reads.sent[2]


LARGE = [{"n": number, "padding": "y" * 1000} for number in range(200)]


def large_reply(batch: str, name: str = BUCKETS) -> bytes:
    document = {"cursor": {batch: LARGE, "id": Int64(9), "ns": name}, "ok": 1.0}
    return op_msg.build(5, 6, bson.encode(document))


@pytest.mark.parametrize("member", [None, ("other", 27017)])
@pytest.mark.parametrize("batch", ["firstBatch", "nextBatch"])
def test_large_batches_go_on_while_they_come(batch: str, member: tuple[str, int] | None) -> None:
    """C23; the client's own request is answered, and the cursor is known afterwards, also where members are."""
    reads = Reads()
    reads.session.member = member
    if batch == "nextBatch":
        reads.cursors.opened(9, TARGET.buckets)
        assert reads.start(command({"getMore": Int64(9), "collection": "x", "$db": "db"}, request_id=33), None)
    else:
        assert reads.start(command(FIND, request_id=33))
    raw = large_reply(batch)
    for start in range(0, len(raw), 10_000):
        assert not reads.client.finished
        reads.connection.data_received(raw[start : start + 10_000])
        assert sum(map(len, reads.client.written)) > min(start, len(raw) - 20_000)
    reply = Message.from_bytes(b"".join(reads.client.written))
    assert reply.response_to == 33
    assert document_of(reply)["cursor"] == {batch: LARGE, "id": 9, "ns": "db.x"}
    assert reads.cursors.backend_namespace(9) == TARGET.buckets
    assert (reads.client.finished, reads.outcomes) == (1, [Streamed])


def test_large_batch_that_breaks_off_ends_the_client() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    reads.connection.data_received(large_reply("firstBatch")[:100_000])
    reads.connection.connection_lost(None)
    assert (reads.client.closed, reads.told.outcomes) == (True, [Lost(partly_sent=True)])


def test_large_batch_of_an_unexpected_cursor_ends_the_client() -> None:
    reads = Reads()
    assert reads.start(command(FIND))
    raw = large_reply("firstBatch", "db.another")
    reads.connection.data_received(raw[:100_000])
    reads.connection.data_received(raw[100_000:])
    assert reads.client.closed


@pytest.mark.parametrize("summed", [True, False])
def test_large_batch_that_is_summed_is_collected(summed: bool) -> None:
    reads = Reads()
    raw = command(FIND)
    assert reads.start(with_checksum(raw) if summed else raw)
    reply = large_reply("firstBatch")
    reads.connection.data_received(reply[:100_000])
    assert bool(reads.client.written) != summed
    reads.connection.data_received(reply[100_000:])
    whole = Message.from_bytes(b"".join(reads.client.written))
    assert document_of(whole)["cursor"]["ns"] == "db.x"
    assert bool(op_msg.parse(whole).flags) == summed


@pytest.mark.parametrize("read", [FIND, {"count": "x", "$db": "db"}, {"explain": {"find": "x"}, "$db": "db"}])
def test_client_that_may_not_read_buckets_reads_through_the_view(read: dict[str, Any]) -> None:
    """As it asked; a cursor is known, so that it counts as a reader and may be continued."""
    reads = Reads()
    reads.allowed = False
    assert reads.start(command(read)) == ("explain" not in read)
    if "explain" in read:
        return
    assert reads.sent == [read]
    reply = {"cursor": {"firstBatch": [{"a": 1}], "id": Int64(9), "ns": "db.x"}, "ok": 1.0}
    assert reads.answer(reply) == reply
    assert reads.cursors.backend_namespace(9) == (TARGET.namespace if "find" in read else None)
    assert reads.start(command(read))
    error = {"ok": 0.0, "errmsg": "not authorized", "code": 13}
    assert reads.answer(error) == error
    assert NeedsTranslation not in reads.outcomes


def test_cursor_of_the_view_is_continued_under_its_name() -> None:
    reads = Reads()
    reads.cursors.opened(9, TARGET.namespace)
    more = {"getMore": Int64(9), "collection": "x", "$db": "db"}
    assert reads.start(command(more), None)
    assert reads.sent == [more]
    reply = {"cursor": {"nextBatch": LARGE, "id": Int64(0), "ns": "db.x"}, "ok": 1.0}
    raw = op_msg.build(5, 6, bson.encode(reply))
    for start in range(0, len(raw), 30_000):
        reads.connection.data_received(raw[start : start + 30_000])
    assert document_of(Message.from_bytes(b"".join(reads.client.written))) == reply
    assert reads.cursors.backend_namespace(9) is None
