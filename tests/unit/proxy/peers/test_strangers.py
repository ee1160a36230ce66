from __future__ import annotations

import asyncio

from proxy.peers.strangers import MOST_STRANGERS, Strangers


def test_beyond_the_limit_the_oldest_of_the_busiest_address_is_closed() -> None:
    strangers, closed = Strangers(), list[str]()
    strangers.enter("honest", "honest", lambda: closed.append("honest"))
    for number in range(MOST_STRANGERS + 9):
        name = f"silent {number}"
        strangers.enter("flood", name, lambda name=name: closed.append(name))  # type: ignore[misc]
        assert not strangers.refuses("flood", 9)
    assert closed == [f"silent {number}" for number in range(10)]
    assert len(strangers) == MOST_STRANGERS


def test_who_has_left_does_not_count() -> None:
    strangers, closed = Strangers(), list[str]()
    for number in range(3 * MOST_STRANGERS):
        strangers.enter("a", number, lambda: closed.append("closed"))
        strangers.end("a", number)
        strangers.end("a", number)
    strangers.end("b", 1)
    assert (len(strangers), closed) == (0, [])


async def test_a_handshake_is_cancelled_and_all_are_closed_in_the_end() -> None:
    strangers, closed = Strangers(), list[str]()
    handshake: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(60))
    strangers.begin("a", handshake)
    strangers.enter("b", "b", lambda: closed.append("b"))
    strangers.close()
    await asyncio.wait([handshake])
    assert handshake.cancelled()
    assert (len(strangers), closed) == (0, ["b"])
