from __future__ import annotations

import weakref
from typing import cast

import bson

from catalog.identity import NOBODY, Identity
from proxy.inserts.held_insert import HeldInsert, HeldInserts, Pending, Recipient, StagedInsert
from proxy.inserts.insert_command import InsertCommand
from proxy.request.session import Session
from tests.support.committer_bench import CommitterBench
from tests.support.insert_messages import COLLECTION
from tests.support.sessions import session


async def test_who_waited_too_long_is_told_that_nothing_was_written() -> None:
    replies: list[bytes | None] = []
    insert = InsertCommand((b"",), True, b"", b"", None, None, True, 0)
    recipient = Recipient(lambda raw, _: replies.append(raw), session())
    HeldInsert(insert, CommitterBench().virtual, Identity(), recipient, 0.0).turn_away()
    (reply,) = replies
    assert bson.decode(reply or b"")["code"] == 262


class Held:
    """``HeldInserts`` over limits of 1,000 measurements, with a clock that stands."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.pending = Pending(1 << 30, 1_000)
        self.held = HeldInserts(self.pending, lambda deadline_seconds: self.now_seconds >= deadline_seconds)
        self.staged: list[tuple[str, int, Pending]] = []
        self.refused: list[str] = []

    def add(
        self,
        peer: str,
        measurements: int,
        deadline_seconds: float = 30.0,
        size_bytes: int = 0,
        *,
        expects_reply: bool = True,
        document: bytes | bytearray = b"",
    ) -> Session:
        client = session()
        client.peer = peer
        size_bytes = size_bytes or 100 * measurements
        insert = InsertCommand(
            (cast("bytes", document),) * measurements, True, b"", b"", None, None, expects_reply, size_bytes
        )
        reply = Recipient(lambda *_: self.refused.append(peer), client)
        self.held.add(HeldInsert(insert, COLLECTION, NOBODY, reply, deadline_seconds), self.stage)
        return client

    def stage(self, held: HeldInsert, pending: Pending) -> None:
        size_bytes, measurements = held.insert.size_bytes, len(held.insert.documents)
        pending.take(size_bytes, measurements)
        self.staged.append((held.reply._session.peer, measurements, pending))

    def settle(self, position: int) -> None:
        """One that was staged is stored; see who comes then."""
        _, measurements, pending = self.staged.pop(position)
        pending.take(-100 * measurements, -measurements)
        self.held.release(self.stage)

    @property
    def who(self) -> list[tuple[str, int]]:
        return [(peer, measurements) for peer, measurements, _ in self.staged]


def filled() -> Held:
    held = Held()
    held.pending.take(0, 1_001)
    return held


def test_small_inserts_have_a_reserve_with_a_bound() -> None:
    held = filled()
    for _ in range(1_000):
        held.add("a", 1)
    assert len(held.staged) == 251
    assert held.pending.measurements == 1_001
    for _ in range(749):
        held.settle(0)
    assert (len(held.staged), bool(held.held)) == (251, False)


def test_other_limits_apply_to_what_waits_and_to_the_reserve() -> None:
    held = filled()
    held.add("a", 200)
    held.held.limit(1 << 30, 2_000)
    held.held.release(held.stage)
    assert held.who == [("a", 200)]
    held.pending.take(0, 2_001)
    for _ in range(1_000):
        held.add("a", 1)
    assert len(held.staged) == 1 + 501


def test_what_is_small_is_told_by_bytes_and_by_measurements() -> None:
    held = filled()
    held.add("a", 101)
    held.add("a", 1, size_bytes=64 * 1024 + 1)
    assert held.staged == []
    held.add("a", 100, size_bytes=64 * 1024)
    assert held.who == [("a", 100)]


def test_a_client_who_comes_last_does_not_wait_for_all_of_another() -> None:
    """Of small inserts while the reserve is used up, and of large ones."""
    held = filled()
    for _ in range(400):
        held.add("many", 1)
    held.add("few", 1)
    held.settle(0)
    held.settle(0)
    assert ("few", 1) in held.who
    held = filled()
    for _ in range(50):
        held.add("many", 2_000)
    held.add("few", 200)
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    assert held.who == [("many", 2_000)]
    held.settle(0)
    assert ("few", 200) in held.who


def test_large_inserts_are_not_starved_by_small_ones() -> None:
    """What room the limits leave goes to both by turns, however many small ones keep coming."""
    held = filled()
    for _ in range(1_000):
        held.add("small", 100)
    held.add("large", 2_000)
    reserved = len(held.staged)
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    assert held.who[reserved:] == [("small", 100), ("large", 2_000)]


def test_who_waits_deep_in_a_queue_is_turned_away_in_time() -> None:
    """Also when others are before them."""
    held = filled()
    for _ in range(5):
        held.add("many", 2_000, deadline_seconds=1.0)
    held.add("few", 2_000, deadline_seconds=60.0)
    held.now_seconds = 1.0
    held.held.release(held.stage)
    assert (held.refused, held.staged) == (["many"] * 5, [])
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    assert held.who == [("few", 2_000)]


class Bytes(bytearray):
    """What can be seen to be freed."""


def test_what_a_client_leaves_behind_is_let_go_at_once() -> None:
    held = filled()
    document = Bytes(1_000_000)
    is_kept = weakref.ref(document)
    leaving = held.add("leaves", 2_000, document=document)
    held.add("stays", 2_000)
    del document
    assert is_kept() is not None
    leaving.close()
    assert is_kept() is None
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    assert (held.who, held.refused, bool(held.held)) == ([("stays", 2_000)], [], False)


def test_a_client_that_wants_no_reply_may_leave_before_its_turn() -> None:
    """Such inserts are all that its last message was for; but they take no more than the reserve of bytes."""
    held = filled()
    quarter = (1 << 30) // 4
    for _ in range(4):
        held.add("gone", 2_000, size_bytes=quarter // 3, expects_reply=False).close()
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    while held.staged:
        assert held.who == [("gone", 2_000)]
        held.pending.take(-(quarter // 3) + 100 * 2_000, 0)
        held.settle(0)
    held.pending.take(0, 1_001)
    held.add("gone", 2_000, size_bytes=quarter, expects_reply=False).close()
    assert held.held


def test_a_client_that_leaves_after_its_turn_takes_nothing_back() -> None:
    held = filled()
    client = held.add("leaves", 2_000)
    held.pending.take(0, -1_001)
    held.held.release(held.stage)
    client.close()
    assert held.who == [("leaves", 2_000)]


def test_what_is_stored_and_waits_for_its_write_concern_is_pending_no_more() -> None:
    replies: list[bytes | None] = []
    released: list[int] = []
    pending = Pending(1_000, 10)
    reply = Recipient(lambda raw, _: replies.append(raw), session())
    staged = StagedInsert(pending, 2_000, 3, reply, lambda: released.append(pending.size_bytes))
    assert (pending.size_bytes, pending.measurements, pending.is_full) == (2_000, 3, True)
    staged.stored()
    assert (pending.size_bytes, pending.measurements, released, replies) == (0, 0, [0], [])
    staged.settled(b"reply", None)
    assert (pending.size_bytes, pending.measurements, replies) == (0, 0, [b"reply"])
