"""What a process has sent does not reach a real server once another one has set up fences (W102)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import bson
import pytest

from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.errors import UNAUTHORIZED, CommandError
from catalog.namespaces import Namespace
from catalog.ports import Rejected
from proxy.backend.fences import MOST_PLACES, MOST_PROCESSES, Fences
from proxy.backend.service import PoolFamily, ServicePool
from proxy.backend.write_numbers import SESSIONS, WriteNumber, WriteNumbers
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK

SECRET = b"secret"


class Process:
    """What one process writes, numbered."""

    def __init__(self, pool: ServicePool, name: str, database: str) -> None:
        self._pool = pool
        self._database = database
        self.numbers = WriteNumbers(SECRET, name)
        self.fenced = 0
        self.numbers.on_fence = self._on_fence

    def _on_fence(self) -> None:
        self.fenced += 1

    def message(self, number: WriteNumber, identity: int) -> bytes:
        """An insert that the network may hold back."""
        body = {"insert": "c", "documents": [{"_id": identity}], "$db": self._database}
        return number.numbered(bson.encode(body))

    async def deliver(self, message: bytes) -> dict[str, Any]:
        return bson.decode(await self._pool.request(message, asyncio.get_running_loop().time() + 10))

    async def write(self, identity: int) -> bool:
        """Whether it was executed at the first attempt."""
        number = self.numbers.take()
        reply = await self.deliver(self.message(number, identity))
        if reply["ok"]:
            self.numbers.free(number)
            return True
        outcome = Rejected(CommandError(reply["code"], reply["errmsg"]))
        assert self.numbers.ended([number], outcome)
        return False


@pytest.fixture
async def pool(replica_set: MongodProcess) -> AsyncIterator[ServicePool]:
    async def primary(timeout_seconds: float) -> tuple[str, int]:
        return LOOPBACK, replica_set.port

    pool = ServicePool(primary, None, None, 5.0)
    yield pool
    pool.close()


@pytest.fixture
def name(db_name: str) -> str:
    """Of a process; the server remembers the fences of others."""
    return f"tsproxy {db_name}"


def fences(pool: ServicePool, db_name: str) -> Fences:
    return Fences(pool, SECRET, lambda: [Namespace(db_name, "tsproxy.nothing")])


async def test_what_was_sent_before_is_refused_in_every_session(
    pool: ServicePool, replica_set: MongodProcess, db_name: str, name: str
) -> None:
    cut_off, other = Process(pool, name, db_name), Process(pool, f"{name} b", db_name)
    assert await cut_off.write(-1)
    late = [cut_off.message(cut_off.numbers.take(), place) for place in range(SESSIONS)]
    await fences(pool, db_name).set_up(name)
    replies = [await cut_off.deliver(each) for each in late]
    assert {each.get("code") for each in replies} == {TRANSACTION_TOO_OLD}
    assert await other.write(-2)
    assert sorted(each["_id"] for each in replica_set.shared_client[db_name].c.find()) == [-2, -1]


async def test_the_process_goes_on_after_one_refusal(pool: ServicePool, db_name: str, name: str) -> None:
    process = Process(pool, name, db_name)
    for _ in range(3):
        await fences(pool, db_name).set_up(name)
    assert [await process.write(place) for place in range(SESSIONS + 1)] == [False] + [True] * SESSIONS
    assert process.fenced == 1


async def test_each_fence_holds_what_was_sent_before_it_whoever_set_up_the_last_one(
    pool: ServicePool, db_name: str, name: str
) -> None:
    process, ways = Process(pool, name, db_name), [fences(pool, db_name) for _ in range(3)]
    for place, way in enumerate([*ways, *ways]):
        late = process.message(process.numbers.take(), -place)
        await way.set_up(name)
        assert (await process.deliver(late))["code"] == TRANSACTION_TOO_OLD
        assert not await process.write(place)
        assert await process.write(place)


async def test_fences_that_several_set_up_at_once_hold(pool: ServicePool, db_name: str, name: str) -> None:
    process = Process(pool, name, db_name)
    late = [process.message(process.numbers.take(), place) for place in range(SESSIONS)]
    await asyncio.gather(*(fences(pool, db_name).set_up(name) for _ in range(4)))
    assert {(await process.deliver(each))["code"] for each in late} == {TRANSACTION_TOO_OLD}


async def test_a_process_that_writes_nothing_can_tell_whether_it_would_meet_fences(
    pool: ServicePool, db_name: str, name: str
) -> None:
    own = Process(pool, name, db_name)
    pool.family.numbers = own.numbers
    made, other = fences(pool, db_name), fences(pool, db_name)
    assert not await made.meets_others()
    await other.set_up(f"{name} b")
    assert not await made.meets_others(), "they are another's"
    await other.set_up(name)
    assert await made.meets_others()
    assert own.fenced == 1
    assert not await made.meets_others()
    assert [await own.write(place) for place in range(SESSIONS + 1)] == [True] * (SESSIONS + 1)


class PoolDouble:
    """Refuses deletes from some collections."""

    def __init__(self, refused: Sequence[str] = (), code: int = UNAUTHORIZED) -> None:
        self.family = PoolFamily()
        self.sent: list[dict[str, Any]] = []
        self._refused = refused
        self._code = code

    async def request(self, body: bytes, deadline_seconds: float) -> bytes:
        await asyncio.sleep(0)
        self.sent.append(bson.decode(body))
        if self.sent[-1]["delete"] in self._refused:
            return bson.encode({"ok": 0.0, "code": self._code, "errmsg": "no"})
        return bson.encode({"n": 0, "ok": 1.0})


class PoolDoubleWithNumbers(PoolDouble):
    """Of a replica set."""

    def __init__(self, refused: Sequence[str] = (), code: int = UNAUTHORIZED) -> None:
        super().__init__(refused, code)
        self.family.numbers = WriteNumbers(SECRET, "tsproxy a")


def over(double: PoolDouble, *places: str) -> Fences:
    return Fences(double, SECRET, lambda: [Namespace("x", each) for each in places])  # type: ignore[arg-type]


async def test_requests_that_come_meanwhile_share_the_next_fences() -> None:
    double = PoolDouble()
    made = over(double, "a")
    await asyncio.gather(*(made.set_up("tsproxy a") for _ in range(50)))
    assert 1 < len(double.sent) / (SESSIONS + 1) <= 2
    assert len({each["txnNumber"] for each in double.sent}) == 3


async def test_another_collection_is_tried_if_the_account_may_not_delete_from_one() -> None:
    double = PoolDouble(["a", "b"])
    await over(double, "a", "b", "c").set_up("tsproxy a")
    assert double.sent[-1]["delete"] == "c"
    with pytest.raises(CommandError) as caught:
        await over(PoolDouble(["a"]), *["a"] * (MOST_PLACES + 1)).set_up("tsproxy a")
    assert caught.value.code == UNAUTHORIZED


async def test_other_errors_end_the_attempt_and_the_next_one_begins_anew() -> None:
    double = PoolDouble(["a"], code=50)
    made = over(double, "a", "b")
    with pytest.raises(CommandError):
        await made.set_up("tsproxy a")
    sent = len(double.sent)
    with pytest.raises(CommandError):
        await made.set_up("tsproxy a")
    assert len(double.sent) > sent


async def test_where_no_collection_is_known_nothing_was_written() -> None:
    double = PoolDouble()
    await over(double).set_up("tsproxy a")
    assert double.sent == []


async def test_without_numbers_or_a_place_nothing_is_met() -> None:
    for double, places in ((PoolDouble(), ["a"]), (PoolDoubleWithNumbers(), [])):
        assert not await over(double, *places).meets_others()
        assert double.sent == []
    with pytest.raises(CommandError):
        await over(PoolDoubleWithNumbers(["a"], code=50), "a").meets_others()


async def test_many_processes_are_not_remembered_for_ever() -> None:
    double = PoolDouble()
    made = over(double, "a")
    for place in range(MOST_PROCESSES + 5):
        await made.set_up(f"tsproxy {place}")
    assert len({bytes(each["lsid"]["id"]) for each in double.sent}) == SESSIONS * (MOST_PROCESSES + 5)
