from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pymongo
import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend import driver_calls
from proxy.backend.driver_calls import DriverCalls, DriverClient, PrimarySearch
from tests.support.eventually import eventually
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK

PATIENCE_SECONDS = 5.0


def calls_to(uri: str) -> DriverCalls:
    return DriverCalls(lambda: AsyncMongoClient(uri, serverSelectionTimeoutMS=int(PATIENCE_SECONDS * 1000)))


@pytest.fixture
async def calls(mongod: MongodProcess) -> AsyncIterator[DriverCalls]:
    async with aclosing(calls_to(mongod.uri)) as made:
        yield made


async def ping(client: DriverClient) -> dict[str, Any]:
    return await client.admin.command("ping")


async def all_have_ended(calls: DriverCalls) -> None:
    async with asyncio.timeout(20):
        while len(calls):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


async def test_its_patience_is_that_of_the_client(calls: DriverCalls) -> None:
    assert calls.patience_seconds == PATIENCE_SECONDS
    assert abs(calls.deadline_seconds() - asyncio.get_running_loop().time() - PATIENCE_SECONDS) < 1


async def test_those_who_give_up_leave_the_driver_whole(mongod: MongodProcess) -> None:
    """The driver's own waits for a server end each half second, and so do many of the callers' times here.

    A busy event loop makes them end in the same turn of it; one in a hundred is enough to break the driver's locks.
    """
    link = Link(mongod.port)
    chance = random.Random(1)
    async with aclosing(calls_to(link.uri)) as calls:
        is_over = asyncio.Event()

        async def be_busy() -> None:
            while not is_over.is_set():
                time.sleep(0.002)  # noqa: ASYNC251
                await asyncio.sleep(0)

        async def give_up() -> None:
            turns = chance.choice((0.5, 1.0)) + chance.uniform(-0.02, 0.1)
            with pytest.raises(BackendUnavailable):
                await calls.ask(ping, turns)

        async def be_cancelled() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.45, 1.1)):
                    await calls.ask(ping, PATIENCE_SECONDS)

        busy = asyncio.ensure_future(be_busy())
        before = calls.client
        async with asyncio.timeout(60):
            for _ in range(2):
                await asyncio.gather(*[work() for _ in range(60) for work in (give_up, be_cancelled)])
        is_over.set()
        await busy
        with link:
            assert await calls.ask(ping, 2 * PATIENCE_SECONDS)
            assert calls.client is before
            await all_have_ended(calls)


async def test_a_request_has_its_own_limit_and_no_other_has_it(mongod: MongodProcess, calls: DriverCalls) -> None:
    """Given up by the caller, it ends at the server, too."""
    await calls.ask(ping)

    async def sleep(client: DriverClient) -> list[Any]:
        return await client.slow.c.find({"$where": "sleep(60000) || true"}).to_list()

    mongod.shared_client.slow.c.insert_one({})
    with pytest.raises(BackendUnavailable) as caught:
        await calls.ask(sleep, 0.3)
    assert caught.value.code == 89
    await all_have_ended(calls)
    assert pymongo._csot.get_timeout() is None
    assert (await calls.ask(ping))["ok"] == 1


async def test_errors_of_the_server_are_told(calls: DriverCalls) -> None:
    async def refused(client: DriverClient) -> Any:
        return await client.admin.command("noSuchCommand")

    with pytest.raises(CommandError) as caught:
        await calls.ask(refused)
    assert caught.value.code == 59


async def test_what_is_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_calls, "REQUESTS_AT_ONCE", 3)
    monkeypatch.setattr(driver_calls, "CLOSE_SECONDS", 0.1)
    async with aclosing(calls_to(f"mongodb://{LOOPBACK}:1/")) as calls:
        begun = 0

        async def never(client: DriverClient) -> None:
            nonlocal begun
            begun += 1
            await asyncio.Event().wait()

        told = await asyncio.gather(*[calls.ask(never, 0.05) for _ in range(10)], return_exceptions=True)
        assert all(isinstance(each, BackendUnavailable) for each in told)
        assert begun == len(calls) == 3


@pytest.mark.parametrize("how", ["its lock is broken", "it does not return"])
async def test_a_broken_client_is_replaced(
    mongod: MongodProcess, calls: DriverCalls, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(driver_calls, "OVERDUE_SECONDS", 0.05)
    monkeypatch.setattr(driver_calls, "CLOSE_SECONDS", 0.1)
    assert await calls.ask(ping)
    broken = calls.client
    topology = broken._topology
    if how == "its lock is broken":

        async def release(client: DriverClient) -> None:
            topology._lock.release()

        with pytest.raises(BackendUnavailable):
            await calls.ask(release, 1.0)
    else:
        # Held by nobody, as after a wait that was cancelled at the wrong moment.
        await topology._lock.acquire()
        with pytest.raises(BackendUnavailable):
            await calls.ask(ping, 0.1)
        await eventually(lambda: calls.client is not broken)
    assert calls.client is not broken
    assert await calls.ask(ping, PATIENCE_SECONDS)
    if topology._lock.locked():
        topology._lock.release()
    await broken.close()


async def test_reads_are_sent_again_until_they_are_answered(mongod: MongodProcess) -> None:
    """The driver itself sends some of them again, once."""
    with Link(mongod.port) as link:
        async with aclosing(calls_to(link.uri)) as calls:
            search = PrimarySearch(calls, PATIENCE_SECONDS)
            is_over = asyncio.Event()

            async def cut() -> None:
                for _ in range(60):
                    link.cut_all()
                    await asyncio.sleep(0.02)
                is_over.set()

            async def names(client: DriverClient) -> list[str]:
                return await client.admin.list_collection_names()

            async def read() -> None:
                while not is_over.is_set():
                    await calls.ask(names, PATIENCE_SECONDS)
                    assert await calls.ask(ping)
                    assert await search.find(PATIENCE_SECONDS) == (LOOPBACK, link.port)

            await asyncio.gather(cut(), *[read() for _ in range(8)])


async def test_reads_of_a_backend_that_went_away_fail_in_time(mongod: MongodProcess) -> None:
    with Link(mongod.port) as link:
        async with aclosing(calls_to(link.uri)) as calls:
            assert await calls.ask(ping)
            link.cut_before_replies(1_000_000)
            begun = time.monotonic()
            with pytest.raises(BackendUnavailable):
                await calls.ask(ping, 2.0)
            assert 1.0 < time.monotonic() - begun < 2.0 + PATIENCE_SECONDS
            assert link.cuts >= 2


async def test_those_who_wait_for_a_primary_share_one_search(mongod: MongodProcess) -> None:
    link = Link(mongod.port)
    async with aclosing(calls_to(link.uri)) as calls:
        search = PrimarySearch(calls, PATIENCE_SECONDS)
        told = await asyncio.gather(*[search.find(0.05) for _ in range(50)], return_exceptions=True)
        assert [each.code for each in told if isinstance(each, BackendUnavailable)] == [133] * 50
        assert len(calls) == 1
        with link:
            assert await search.find(None) == (LOOPBACK, link.port)
            assert await search.find(PATIENCE_SECONDS) == (LOOPBACK, link.port)


async def test_each_of_those_has_an_error_of_its_own(calls: DriverCalls) -> None:
    async def fail(client: DriverClient) -> None:
        raise OperationFailure("no", 13)

    answer = calls.begin(fail, 1.0)
    told = await asyncio.gather(*[driver_calls.answer_within(answer, 1.0) for _ in range(2)], return_exceptions=True)
    assert [type(each) for each in told] == [CommandError] * 2
    assert told[0] is not told[1]


async def test_what_is_under_way_at_the_end_fails(calls: DriverCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_calls, "CLOSE_SECONDS", 0.05)

    async def never(client: DriverClient) -> None:
        await asyncio.Event().wait()

    answer = calls.begin(never, 60.0)
    await calls.aclose()
    with pytest.raises(BackendUnavailable):
        await driver_calls.answer_within(answer, None)


class Searches:
    """Searches that end as the list says."""

    def __init__(self, *ends: tuple[str, int] | OperationFailure) -> None:
        self._ends = list(ends)

    def begin(self, request: object, timeout_seconds: float) -> asyncio.Future[tuple[str, int]]:
        answer: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        end = self._ends.pop(0)
        if isinstance(end, OperationFailure):
            answer.set_exception(end)
        else:
            answer.set_result(end)
        return answer


async def test_the_primary_remains_known_while_the_login_is_refused() -> None:
    refused, first, second = OperationFailure("Authentication failed.", 18), ("a", 1), ("b", 2)
    search = PrimarySearch(cast("DriverCalls", Searches(first, refused, refused, second, second)), PATIENCE_SECONDS)
    assert [await search.find(1.0) for _ in range(4)] == [first] * 4
    await asyncio.sleep(0)
    assert await search.find(1.0) == second


async def test_a_login_that_was_always_refused_is_an_error() -> None:
    search = PrimarySearch(
        cast("DriverCalls", Searches(OperationFailure("Authentication failed.", 18))), PATIENCE_SECONDS
    )
    with pytest.raises(CommandError) as caught:
        await search.find(1.0)
    assert caught.value.code == 18
