"""Held commands: let go in order, refused when their time is up, forgotten with their client."""

from __future__ import annotations

import asyncio

from catalog.errors import BackendUnavailable
from proxy.admin.waiting import STARTED_AT_ONCE, HeldCommand
from proxy.request.times import WaitKind
from tests.support.admin_calls import Asking


def waiting() -> HeldCommand:
    return HeldCommand(lambda: BackendUnavailable("too long"))


async def test_commands_are_let_go_in_their_order_and_a_few_at_a_time() -> None:
    held, asking = waiting(), Asking()
    exchanges = [asking.exchange({"ping": number}) for number in range(STARTED_AT_ONCE + 1)]
    for exchange in exchanges:
        held.add(exchange, 60.0)
    assert (len(held), list(held)) == (len(exchanges), exchanges)
    assert exchanges[0] in held
    going = asyncio.create_task(held.let_go(while_true=lambda: True))
    await asyncio.sleep(0)
    assert asking.started.exchanges == exchanges[:STARTED_AT_ONCE]
    await going
    assert asking.started.exchanges == exchanges
    assert len(held) == 0
    assert list(exchanges[0].times().waited) == [WaitKind.PAUSE]


async def test_letting_go_stops_when_commands_are_held_again() -> None:
    held, asking = waiting(), Asking()
    for number in range(3):
        held.add(asking.exchange({"ping": number}), 60.0)
    await held.let_go(while_true=lambda: len(held) > 1)
    assert len(held) == 1


async def test_who_waits_too_long_gets_the_error() -> None:
    held, patient, hasty = waiting(), Asking(), Asking()
    held.add(patient.exchange({"ping": 1}), 60.0)
    held.add(hasty.exchange({"insert": "c", "txnNumber": 1}), 0.01)
    async with asyncio.timeout(20):
        while not hasty.client.finished:  # noqa: ASYNC110 - only the client knows
            await asyncio.sleep(0.01)
    (reply,) = hasty.replies
    assert (reply["errmsg"], reply["code"]) == ("too long", 6)
    assert (len(held), patient.replies) == (1, [])
    held.refuse_all()
    assert [each["errmsg"] for each in patient.replies] == ["too long"]


async def test_a_client_that_disconnects_is_forgotten() -> None:
    held, asking = waiting(), Asking()
    exchange = asking.exchange({"ping": 1})
    held.add(exchange, 0.01)
    exchange.abandon()
    assert (len(held), held.take()) == (0, None)
    await asyncio.sleep(0.05)
    assert asking.replies == []
