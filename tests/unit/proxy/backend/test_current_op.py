"""A real server's ``$currentOp`` tells who reads a database beside this process."""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import Binary, Int64

from catalog.bson.codec import decode, encode
from catalog.errors import UNAUTHORIZED, CommandError
from catalog.identity import User
from proxy.backend.current_op import Activity, CurrentOperations, account_of, listener_in, listener_text, process_name
from proxy.backend.service import ServicePool
from proxy.backend.service_auth import introducing
from proxy.backend.service_connection import NotSent
from tests.support.mongod import MongodProcess
from tests.support.raw_wire import RawClient

NAME = process_name()
ROWS = 500


@pytest.fixture(params=["mongod", "replica_set"])
def server(request: pytest.FixtureRequest) -> MongodProcess:
    chosen: MongodProcess = request.getfixturevalue(request.param)
    return chosen


def pool_of(server: MongodProcess) -> ServicePool:
    async def primary(_: float) -> tuple[str, int]:
        return "127.0.0.1", server.port

    return ServicePool(primary, introducing(NAME, lambda _: None, None), None, 5.0)


@pytest.fixture
async def others(server: MongodProcess) -> AsyncIterator[CurrentOperations]:
    pool = pool_of(server)
    yield CurrentOperations(pool, NAME)
    pool.close()


@pytest.fixture
def database(server: MongodProcess, db_name: str) -> pymongo.database.Database[dict[str, Any]]:
    """With a time-series collection, a view and a plain collection, each with rows."""
    database = server.shared_client[db_name]
    series = database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    series.insert_many([{"t": datetime(2024, 1, 1, tzinfo=UTC), "m": number} for number in range(ROWS)])
    database.plain.insert_many([{"n": number} for number in range(ROWS)])
    database.create_collection("view", viewOn="ts", pipeline=[{"$match": {}}])
    return database


@pytest.mark.parametrize("name", ["ts", "view", "plain", "system.buckets.ts"])
async def test_an_open_cursor_reads_its_database(
    others: CurrentOperations, database: pymongo.database.Database[dict[str, Any]], name: str
) -> None:
    """A cursor on another collection may have a ``$lookup`` to come."""
    assert not await others.read(database.name)
    cursor = database[name].find(batch_size=2)
    next(cursor)
    assert await others.read(database.name)
    assert not await others.read(database.name[:-1]), "a name that only begins so is another database"
    assert not await others.read("other")
    cursor.close()
    assert not await others.read(database.name)


async def test_a_command_under_way_reads_its_database(
    others: CurrentOperations, database: pymongo.database.Database[dict[str, Any]]
) -> None:
    slow = threading.Thread(target=lambda: list(database.plain.find({"$where": "sleep(4) || true"})))
    slow.start()
    seen = False
    while slow.is_alive() and not seen:
        seen = await others.read(database.name)
        await asyncio.sleep(0.01)
    slow.join()
    assert seen
    assert not await others.read(database.name)


async def test_a_change_stream_is_no_reader(
    others: CurrentOperations, replica_set: MongodProcess, db_name: str
) -> None:
    with replica_set.shared_client[db_name].watch() as stream:
        assert stream.try_next() is None
        assert not await others.read(db_name)


async def test_an_unknown_answer_counts_as_a_reader() -> None:
    async def nowhere(_: float) -> tuple[str, int]:
        raise NotSent("no backend")

    others = CurrentOperations(ServicePool(nowhere, None, None, 0.1), NAME)
    assert await others.read("any")
    with pytest.raises(CommandError):
        await others.proxies()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[tuple[MongodProcess, CurrentOperations]]:
    """A server that no other test uses: in front of the session's there are proxies."""
    server = MongodProcess(tmp_path / "mongod").start()
    pool = pool_of(server)
    try:
        yield server, CurrentOperations(pool, NAME)
    finally:
        pool.close()
        server.remove()


@pytest.mark.parametrize("name", ["tsproxy", process_name()], ids=["old", "own"])
async def test_other_proxies_are_known_by_their_name(alone: tuple[MongodProcess, CurrentOperations], name: str) -> None:
    server, others = alone
    assert await others.proxies() == []
    with pymongo.MongoClient[dict[str, Any]](server.uri, appname="tsproxies of somebody") as other:
        other.admin.command("ping")
        assert await others.proxies() == []
    with pymongo.MongoClient[dict[str, Any]](server.uri, appname=name) as other:
        other.admin.command("ping")
        assert [each.name for each in await others.proxies()] == [name]


async def test_other_proxies_are_counted_by_their_name(alone: tuple[MongodProcess, CurrentOperations]) -> None:
    server, others = alone
    assert await others.count_proxies() == 0
    with ExitStack() as connected:
        for name, count in (("tsproxy 1", 1), ("tsproxy 1", 1), ("tsproxy 2", 2)):
            other = connected.enter_context(pymongo.MongoClient[dict[str, Any]](server.uri, appname=name))
            other.admin.command("ping")
            assert await others.count_proxies() == count
            assert [(each.name, each.address, each.version) for each in await others.proxies()] == [
                (f"tsproxy {number + 1}", "127.0.0.1", "") for number in range(count)
            ]


async def test_another_proxy_can_count_as_a_reader_of_everything(
    alone: tuple[MongodProcess, CurrentOperations],
) -> None:
    server, others = alone
    assert not await others.read("any", or_are_proxies=True)
    with pymongo.MongoClient[dict[str, Any]](server.uri, appname="tsproxy 1") as other:
        other.admin.command("ping")
        assert not await others.read("any")
        assert await others.read("any", or_are_proxies=True)
        assert not await others.read("any", or_are_proxies=True, but={"tsproxy 1"})
        assert await others.read("any", or_are_proxies=True, but={"tsproxy 2"})


async def test_a_proxy_tells_where_others_can_ask_it(alone: tuple[MongodProcess, CurrentOperations]) -> None:
    server, others = alone

    async def primary(_: float) -> tuple[str, int]:
        return "127.0.0.1", server.port

    told: dict[str, str] = {}
    pool = ServicePool(primary, introducing("tsproxy x", lambda _: None, None, told), None, 5.0)
    ping = encode({"ping": 1, "$db": "admin"})
    try:
        deadline_seconds = asyncio.get_running_loop().time() + 10
        await pool.request(ping, deadline_seconds)
        assert [each[4:] for each in await others.proxies()] == [(0, False, False)]
        told["platform"] = listener_text(1234, has_tls=True, is_local=True)
        pool.forget_primary()
        await pool.request(ping, deadline_seconds)
        assert [each[4:] for each in await others.proxies()] == [(1234, True, True)]
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("peers 7", (7, False, False)),
        ("peers 7 tls", (7, True, False)),
        ("peers 7 local", (7, False, True)),
        ("", (0, False, False)),
        ("peers x", (0, False, False)),
        ("7", (0, False, False)),
    ],
)
def test_what_is_told_of_the_listener_is_read_again(text: str, told: tuple[int, bool, bool]) -> None:
    assert listener_in(text) == told


async def test_the_operations_of_a_process_are_told_by_number(alone: tuple[MongodProcess, CurrentOperations]) -> None:
    """The driver's monitoring, which always waits for an answer, is no work."""
    server, others = alone
    assert await others.activity("tsproxy 1") == Activity(is_connected=False)
    with pymongo.MongoClient[dict[str, Any]](server.uri, appname="tsproxy 1", heartbeatFrequencyMS=500) as other:
        other.d.plain.insert_many([{"n": number} for number in range(10)])
        assert await others.activity("tsproxy 1") == Activity(is_connected=True)
        slow = threading.Thread(target=lambda: list(other.d.plain.find({"$where": "sleep(200) || true"})))
        slow.start()
        seen = Counter[str]()
        while slow.is_alive():
            seen.update((await others.activity("tsproxy 1")).operations)
            await asyncio.sleep(0.01)
        slow.join()
        # The end of the monitoring's wait may be seen for a moment.
        assert len([each for each, looks in seen.items() if looks > 1]) == 1
        assert await others.activity("tsproxy 1") == Activity(is_connected=True)
    assert await others.activity("tsproxy 2") == Activity(is_connected=False)


async def test_a_command_is_found_by_its_session(alone: tuple[MongodProcess, CurrentOperations]) -> None:
    server, others = alone
    one, other = (bson.encode({"id": Binary(uuid.uuid4().bytes, 4)}) for _ in range(2))
    server.shared_client.d.plain.insert_one({"n": 1})
    with RawClient(server.port) as client:
        find = {"find": "plain", "filter": {"$where": "sleep(300) || true"}, "lsid": bson.decode(one), "$db": "d"}
        slow = threading.Thread(target=lambda: client.run(find))
        slow.start()
        seen = set[bool]()
        while slow.is_alive():
            seen.add(await others.executes([other, one]))
            assert not await others.executes([other])
            await asyncio.sleep(0.01)
        slow.join()
    assert True in seen
    assert not await others.executes([one, b"no document"])


async def test_a_process_that_was_killed_in_a_transaction_is_gone_and_its_transaction_is_ended(
    replica_set: MongodProcess, db_name: str
) -> None:
    """The server keeps the transaction, and shows its session with the name of the process."""
    pool = pool_of(replica_set)
    others = CurrentOperations(pool, NAME)
    victim = f"tsproxy {db_name}"
    database = replica_set.shared_client[db_name]
    database.plain.insert_one({"_id": 1})
    session = {"$db": db_name, "lsid": {"id": Binary(uuid.uuid4().bytes, 4)}, "autocommit": False}
    with RawClient(replica_set.port) as killed:
        driver, system = {"name": "d", "version": "1"}, {"type": "x"}
        client = {"application": {"name": victim}, "driver": driver, "os": system}
        killed.run({"hello": 1, "client": client, "$db": "admin"})
        statement = {"q": {"_id": 1}, "limit": 1}
        for number in itertools.count(1):
            begun = {**session, "txnNumber": Int64(number), "startTransaction": True}
            reply = killed.run({"delete": "plain", "deletes": [statement], **begun})
            # The snapshot of a transaction may be older than the collection that was just made.
            if "TransientTransactionError" not in reply.get("errorLabels", ()):
                break
        assert reply.get("n") == 1, reply
        assert await others.activity(victim) == Activity(is_connected=True)
    while victim in {each.name for each in await others.proxies()}:  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.02)
    assert await others.activity(victim) == Activity(is_connected=False)
    assert await others.end_idle_transactions(30.0) == 0
    assert await others.end_idle_transactions(0.0) >= 1
    database.plain.update_one({"_id": 1}, {"$set": {"x": 1}})
    pool.close()


def test_user_and_database_of_the_account_are_kept_apart() -> None:
    """Either name may have any character."""
    status = {"authInfo": {"authenticatedUsers": [{"user": "a", "db": "b@c"}]}}
    account = account_of(encode(status))
    assert account == User("a", "b@c")
    assert account_of(encode({"authInfo": {"authenticatedUsers": []}})) is None


async def test_a_database_of_the_account_with_any_name_is_asked_for() -> None:
    asked: list[dict[str, Any]] = []

    class Pool:
        async def request(self, command: bytes, deadline_seconds: float) -> bytes:
            asked.append(decode(command))
            return encode({"ok": 1, "cursor": {"firstBatch": []}})

    others = CurrentOperations(Pool(), NAME, User("a", "b@c"))  # type: ignore[arg-type]
    await others.proxies()
    matched = asked[0]["pipeline"][1]["$match"]
    assert matched["effectiveUsers"] == {"$elemMatch": {"user": "a", "db": "b@c"}}


async def test_a_refusal_is_told_without_the_command() -> None:
    class Pool:
        async def request(self, command: bytes, deadline_seconds: float) -> bytes:
            return encode({"ok": 0, "code": 13, "errmsg": f"not authorized to execute command {decode(command)}"})

    with pytest.raises(CommandError) as raised:
        await CurrentOperations(Pool(), NAME).proxies()  # type: ignore[arg-type]
    assert raised.value.message == "the backend's account lacks the privilege inprog on the cluster"


async def test_proxies_of_an_account_are_seen_without_a_privilege() -> None:
    """Sessions are looked for among the commands of all users, and if that is refused, among those of the account."""
    asked: list[Any] = []

    class Pool:
        async def request(self, command: bytes, deadline_seconds: float) -> bytes:
            asked.append(decode(command)["pipeline"][0]["$currentOp"]["allUsers"])
            if asked[-1]:
                return encode({"ok": 0, "code": 13, "errmsg": "not authorized"})
            return encode({"ok": 1, "cursor": {"firstBatch": [{"type": "op"}]}})

    session = encode({"id": Binary(uuid.uuid4().bytes, 4)})
    others = CurrentOperations(Pool(), NAME, User("a", "b"))  # type: ignore[arg-type]
    assert await others.executes([session])
    assert asked == [True, False]
    with pytest.raises(CommandError):
        await CurrentOperations(Pool(), NAME).executes([session])  # type: ignore[arg-type]


class FencesDouble:
    """Cannot set any up, or meets none, for this reason."""

    def __init__(self, reason: CommandError | None) -> None:
        self._reason = reason

    async def set_up(self, name: str) -> None:
        if self._reason is not None:
            raise self._reason

    async def meets_others(self) -> bool:
        await self.set_up("")
        return True


async def test_w102_whether_what_another_process_has_sent_is_kept_out() -> None:
    """Without the right to delete, it cannot be; another error may go away."""

    def over(fences: Any) -> CurrentOperations:
        return CurrentOperations(ServicePool(_nowhere, None, None, 1.0), "tsproxy one", fences=fences)

    assert await over(FencesDouble(None)).fence("tsproxy two")
    assert not await over(None).fence("tsproxy two")
    assert not await over(FencesDouble(CommandError(UNAUTHORIZED, "no"))).fence("tsproxy two")
    with pytest.raises(CommandError):
        await over(FencesDouble(CommandError(50, "too slow"))).fence("tsproxy two")
    assert await over(FencesDouble(None)).meets_fences()
    assert not await over(None).meets_fences()
    assert not await over(FencesDouble(CommandError(UNAUTHORIZED, "no"))).meets_fences()
    with pytest.raises(CommandError):
        await over(FencesDouble(CommandError(50, "too slow"))).meets_fences()


async def _nowhere(timeout_seconds: float) -> tuple[str, int]:
    raise NotSent("nobody is there")
