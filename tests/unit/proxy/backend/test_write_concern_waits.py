"""Which writes wait themselves, and which are waited for; real sets: tests/topology."""

from __future__ import annotations

import asyncio
from typing import Any

import bson
import pytest

from catalog.namespaces import Namespace
from catalog.ports import WriteConcern
from proxy.backend.replication_wait import Attempt
from proxy.backend.write_concern_waits import ODD_AT_ONCE, WriteConcernWaits
from tests.support.replication_waits import Client, Waits

NAMESPACE = Namespace("d", "ts")
STORED = {"n": 1, "opTime": {"t": 1}, "ok": 1.0}


class Backend:
    """Sends nothing: says what the test wants said, and keeps how it was asked."""

    def __init__(self) -> None:
        self.pool = Waits()
        self.waits = WriteConcernWaits(self.pool, self.pool.spawn, 0.2)
        self.attempts: list[Attempt] = []
        self.said: dict[str, Any] = STORED

    async def send(self, attempt: Attempt) -> bytes:
        self.attempts.append(attempt)
        await asyncio.sleep(0)
        return bson.encode(self.said)

    async def write(self, concern: dict[str, Any] | None) -> Any:
        raw = b"" if concern is None else bson.encode(concern)
        return await self.waits.write(WriteConcern(raw), NAMESPACE, self.send)

    def not_met(self, **shown: Any) -> None:
        info = {"writeConcern": {"wtimeout": 0, "provenance": "clientSupplied", **shown}}
        self.said = {**STORED, "writeConcernError": {"code": 50, "errmsg": "time", "errInfo": info}}


@pytest.mark.parametrize("concern", [{"w": 1}, {"w": 0}, {"j": True}, {"w": 1.0, "j": False}, {"wtimeout": 5}], ids=str)
async def test_what_waits_for_nobody_goes_as_it_is(concern: dict[str, Any]) -> None:
    backend = Backend()
    assert await backend.write(concern) == (STORED, None)
    assert backend.attempts == [Attempt.AS_IT_IS]


async def test_after_one_that_was_not_met_in_time_clients_alone_wait() -> None:
    backend = Backend()
    backend.not_met(w=2)
    _, first = await backend.write({"w": 2, "wtimeout": 600_000})
    assert first is not None
    backend.said = STORED
    for concern in ({"w": 2, "wtimeout": 7}, {"w": 2.0}, {"w": 2, "wtimeout": 9000.5}):
        _, wait = await backend.write(concern)
        assert wait is not None
    assert await backend.write({"w": 3}) == (STORED, None)
    assert backend.attempts == [Attempt.LIMITED, *[Attempt.LOCAL] * 3, Attempt.LIMITED]
    client = Client(first)
    await backend.pool.answer(0)
    await asyncio.sleep(0.01)
    assert client.heard


async def test_the_default_is_what_the_server_shows() -> None:
    backend = Backend()
    backend.not_met(w="majority", wtimeout=30_000, provenance="customDefault")
    _, wait = await backend.write(None)
    assert wait.concern == {"w": "majority", "wtimeout": 30_000, "provenance": "customDefault"}
    assert wait.deadline_seconds is not None
    await asyncio.sleep(0)
    await backend.pool.answer(0)
    assert backend.pool.asked[0][0]["writeConcern"] == {"w": "majority"}


async def test_steps_do_not_wait_for_the_default_either() -> None:
    waits = Backend().waits
    for nothing in (b"", bson.encode({})):
        assert waits.of_steps(nothing) == {"w": 1}
    assert waits.of_steps(bson.encode({"w": 1})) is None
    assert waits.of_steps(bson.encode({"w": 2, "fsync": False})) is None


async def test_an_empty_write_concern_is_the_default() -> None:
    backend = Backend()
    await backend.write({})
    assert backend.attempts == [Attempt.LIMITED]


async def test_forms_that_only_the_server_understands_are_few_at_once_until_it_shows_them() -> None:
    backend = Backend()
    backend.not_met(w=2)
    under_way = most = 0
    send = backend.send

    async def counting(attempt: Attempt) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return await send(attempt)

    backend.send = counting  # type: ignore[method-assign]
    await asyncio.gather(*(backend.write({"w": 2, "fsync": False, "wtimeout": each}) for each in range(20)))
    assert most <= ODD_AT_ONCE + 1
    await backend.write({"w": 2, "fsync": False, "wtimeout": 3})
    assert backend.attempts[-1] is Attempt.LOCAL


async def test_a_write_that_needed_longer_by_itself_ends_the_limit_for_a_while() -> None:
    backend = Backend()
    backend.said = {"ok": 0.0, "code": 50}
    assert (await backend.write(None))[1] is None
    await backend.write(None)
    assert backend.attempts == [Attempt.LIMITED, Attempt.AS_IT_IS]


async def test_a_refused_write_is_not_waited_for() -> None:
    backend = Backend()
    backend.not_met(w=2)
    await backend.write({"w": 2})
    backend.said = {"ok": 0.0, "code": 13}
    assert (await backend.write({"w": 2}))[1] is None
