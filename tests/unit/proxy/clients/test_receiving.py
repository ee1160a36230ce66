"""Partly received messages: how much room there is, who has it, who gets it next."""

from __future__ import annotations

import random

from proxy.clients.receiving import LEAST_ROOM_BYTES, SLOW_BYTES_PER_SECOND, SLOW_SECONDS, ReceivingRoom

MB = 1_000_000


class Sender:
    def __init__(self, room: ReceivingRoom) -> None:
        self.room = room
        self.received_bytes = 0
        self.told = 0
        self.is_closed = False

    def read_on(self) -> None:
        self.told += 1

    def abort(self) -> None:
        self.is_closed = True
        self.room.release(self, 0.0)


class Senders:
    """Of a room for 200 MB."""

    def __init__(self) -> None:
        self.room = ReceivingRoom(200 * MB)

    def take(self, owner: str, size_bytes: int, times: int = 1) -> list[Sender]:
        senders = [Sender(self.room) for _ in range(times)]
        for sender in senders:
            self.room.take(sender, owner, size_bytes, 0.0)
        return senders

    def waiting(self, senders: list[Sender]) -> int:
        return sum(self.room.waits(sender) for sender in senders)


def test_one_client_has_half_of_the_room_and_others_the_rest() -> None:
    senders = Senders()
    many = senders.take("many", 48 * MB, 50)
    assert (senders.waiting(many), senders.room.used_bytes) == (48, 96 * MB)
    few = senders.take("few", 48 * MB, 2)
    assert (senders.waiting(few), senders.room.used_bytes) == (0, 192 * MB)


def test_room_goes_to_those_who_wait_by_turns_of_their_clients() -> None:
    senders = Senders()
    held = [*senders.take("a", 48 * MB, 2), *senders.take("b", 48 * MB, 2)]
    many = senders.take("many", 40 * MB, 3)
    few = senders.take("few", 40 * MB)
    senders.room.release(held[0], 0.0)
    assert (senders.waiting(many), senders.waiting(few)) == (2, 1)
    senders.room.release(held[1], 0.0)
    assert (senders.waiting(many), senders.waiting(few)) == (2, 0)
    assert [sender.told for sender in (*many, *few)] == [1, 0, 0, 1]


def test_a_long_message_is_not_passed_by_short_ones_for_ever() -> None:
    senders = Senders()
    short = [senders.take(f"s{number}", 10 * MB)[0] for number in range(20)]
    (long,) = senders.take("long", 48 * MB)
    later = senders.take("later", 10 * MB)
    for sender in short[:5]:
        assert senders.room.waits(long)
        assert senders.room.waits(later[0])
        senders.room.release(sender, 0.0)
    assert not senders.room.waits(long)


def test_who_asks_again_has_what_he_has() -> None:
    senders = Senders()
    (sender,) = senders.take("a", 48 * MB)
    assert senders.room.take(sender, "a", 48 * MB, 0.0)
    assert senders.room.used_bytes == 48 * MB
    waiting = senders.take("a", 48 * MB, 2)[1]
    assert not senders.room.take(waiting, "a", 48 * MB, 0.0)
    senders.room.release(waiting, 0.0)
    assert not senders.room.waits(waiting)


def test_those_who_keep_room_and_send_nothing_are_closed_when_others_need_it() -> None:
    senders = Senders()
    stalled, sending = senders.take("a", 48 * MB, 2)
    other = senders.take("other", 48 * MB, 2)
    senders.room.close_slow(100.0)
    assert not stalled.is_closed, "nobody waits"
    (waiting,) = senders.take("new", 48 * MB)
    stalled.received_bytes = 1
    for sender in (sending, *other):
        sender.received_bytes = int(100 * SLOW_BYTES_PER_SECOND)
    senders.room.close_slow(100.0)
    assert [sender.is_closed for sender in (stalled, sending, *other)] == [True, False, False, False]
    assert (waiting.told, senders.room.waits(waiting)) == (1, False)


def test_nobody_is_closed_for_one_whose_own_client_has_too_much() -> None:
    senders = Senders()
    own = senders.take("own", 48 * MB, 3)
    other = senders.take("other", 48 * MB)
    for sender in own[:2]:
        sender.received_bytes = int(SLOW_SECONDS * SLOW_BYTES_PER_SECOND)
    senders.room.close_slow(SLOW_SECONDS)
    assert not any(sender.is_closed for sender in (*own, *other))
    senders.room.close_slow(2 * SLOW_SECONDS)
    assert [sender.is_closed for sender in (*own, *other)] == [True, True, False, False]


def test_nothing_is_left_of_those_who_are_gone_and_the_limit_holds() -> None:
    chance = random.Random(1)
    senders = Senders()
    present: list[Sender] = []
    for _ in range(5_000):
        if present and chance.random() < 0.5:
            senders.room.release(present.pop(chance.randrange(len(present))), 0.0)
        else:
            present += senders.take(f"c{chance.randrange(6)}", chance.randrange(70_000, 48 * MB))
        assert senders.room.used_bytes <= 200 * MB
        assert senders.waiting(present) < len(present) or not present
    for sender in present:
        senders.room.release(sender, 0.0)
    empty = vars(ReceivingRoom(200 * MB))
    assert vars(senders.room) == empty
    assert LEAST_ROOM_BYTES <= 200 * MB
