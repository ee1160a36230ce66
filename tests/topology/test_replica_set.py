"""In front of a replica set the proxy is a mongos: failovers are its business, and clients only retry."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any, Self

import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Nearest, Secondary
from pymongo.write_concern import WriteConcern

from tests.support.books import Books, measurement_of, new_id
from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)

pytestmark = pytest.mark.timeout(240)


def connect(uri: str, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
    return pymongo.MongoClient(uri, **{"serverSelectionTimeoutMS": 30_000, **options})


class Writers:
    """Threads that insert one document after the other until told to stop; every error of a client is kept."""

    def __init__(self, uri: str, database: str, collection: str, count: int = 4) -> None:
        self.client = connect(uri)
        self.collection = self.client[database].get_collection(collection, write_concern=WriteConcern(w="majority"))
        self.errors: list[BaseException] = []
        self.books = Books()
        self._stop = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.join()
        self.client.close()

    def _write(self, number: int) -> None:
        while not self._stop.is_set():
            document = measurement_of(new_id(number))
            try:
                self.collection.insert_one(document)
            except PyMongoError as error:
                self.errors.append(error)
            else:
                self.books.acknowledged.add(document["_id"])

    def progress(self, proxy: ProxyProcess, more: int = 20) -> None:
        """Wait until each was heard of again."""
        goal = len(self.books.acknowledged) + more
        proxy.wait_until(lambda: len(self.books.acknowledged) >= goal, timeout_seconds=60)


def drop(client: pymongo.MongoClient[dict[str, Any]], database: str) -> None:
    """Drivers do not retry this: it may meet the old primary, or be interrupted by the next election."""
    for _ in range(5):
        try:
            client.drop_database(database)
        except (pymongo.errors.NotPrimaryError, pymongo.errors.WriteConcernError):
            continue
        return
    client.drop_database(database)


def test_hello_is_that_of_a_mongos_and_names_no_member(proxies: list[ProxyProcess], three: ReplicaSet) -> None:
    with proxies[0].client() as client:
        for name in ("hello", "isMaster", "ismaster"):
            reply = client.admin.command(name)
            assert reply["msg"] == "isdbgrid"
            assert {"hosts", "me", "primary", "setName", "setVersion", "electionId"}.isdisjoint(reply)
            assert not any(str(member.port) in str(reply) for member in three.members)
        assert client.topology_description.topology_type_name == "Sharded"


def test_drivers_take_several_proxies_as_mongoses(
    proxies: list[ProxyProcess], proxies_uri: str, three: ReplicaSet
) -> None:
    database = f"several_{ObjectId()}"
    with connect(proxies_uri) as client:
        client[database].plain.insert_one({})
        assert len(client.nodes) == 2
        proxies[1].kill()
        try:
            for _ in range(10):
                client[database].plain.insert_one({})
            assert client[database].plain.count_documents({}) == 11
        finally:
            proxies[1].start()
        drop(client, database)


@pytest.mark.parametrize("collection", ["ts", "plain"])
def test_step_down_under_load_is_invisible_to_retrying_clients(
    collection: str, proxies: list[ProxyProcess], proxies_uri: str, three: ReplicaSet
) -> None:
    database = f"stepdown_{ObjectId()}"
    proxy = proxies[0]
    with connect(proxies_uri) as client:
        client[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        with Writers(proxies_uri, database, collection) as writers:
            writers.progress(proxy)
            before = three.await_primary()
            three.step_down()
            three.await_primary(other_than=before)
            writers.progress(proxy)
        found = writers.books.check_read(client[database][collection].find({}), writers.books.promise())
        drop(client, database)
    assert [repr(error) for error in writers.errors] == []
    assert found.keys() == writers.books.acknowledged


@pytest.mark.parametrize("collection", ["ts", "plain"])
def test_killed_primary_loses_nothing_that_was_acknowledged(
    collection: str, proxies: list[ProxyProcess], proxies_uri: str, three: ReplicaSet
) -> None:
    database = f"killed_{ObjectId()}"
    proxy = proxies[0]
    with connect(proxies_uri) as client:
        client[database].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        try:
            with Writers(proxies_uri, database, collection) as writers:
                writers.progress(proxy)
                killed = three.await_primary()
                killed.kill()
                three.await_primary(other_than=killed)
                writers.progress(proxy)
        finally:
            three.heal()
        concern = ReadConcern("majority")
        rows = client[database].get_collection(collection, read_concern=concern).find({})
        writers.books.check_read(rows, writers.books.promise())
        drop(client, database)
    assert [repr(error) for error in writers.errors] == []


def test_transactions_and_causal_reads(proxies_uri: str) -> None:
    database = f"causal_{ObjectId()}"
    with connect(proxies_uri) as client:
        db = client[database]
        db.create_collection("plain")
        db.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        with client.start_session(causal_consistency=True) as session:
            with session.start_transaction():
                db.plain.insert_one({"x": 1}, session=session)
                assert db.plain.count_documents({}, session=session) == 1
                assert list(db.ts.find({}, session=session)) == []
                session.abort_transaction()
            assert db.plain.count_documents({}, session=session) == 0
            session.with_transaction(lambda own: db.plain.insert_one({"x": 2}, session=own))
            for index in range(20):
                db.ts.insert_one({"t": START, "m": "causal", "v": index}, session=session)
                assert session.operation_time is not None
                seen = db.ts.with_options(read_preference=Secondary(), read_concern=ReadConcern("majority"))
                assert len(list(seen.find({"m": "causal"}, session=session))) == index + 1
        drop(client, database)


def test_transaction_fails_over_with_the_label_that_makes_drivers_begin_anew(
    proxies_uri: str, three: ReplicaSet
) -> None:
    database = f"txn_{ObjectId()}"
    with connect(proxies_uri) as client:
        db = client[database]
        db.create_collection("plain")
        attempts = []

        def work(session: Any) -> None:
            attempts.append(1)
            db.plain.insert_one({"attempt": len(attempts)}, session=session)
            if len(attempts) == 1:
                three.step_down()
            db.plain.insert_one({"attempt": len(attempts)}, session=session)

        with client.start_session() as session:
            session.with_transaction(work)
        stored = [document["attempt"] for document in db.plain.find()]
        drop(client, database)
    assert len(attempts) >= 2
    assert stored == [len(attempts)] * 2


def served(members: ReplicaSet) -> dict[str, int]:
    """How many ``find`` commands each member has carried out."""
    counts = {}
    for member in members.members:
        with pymongo.MongoClient[Any](f"mongodb://{members.login}{member.address}/?directConnection=true") as direct:
            status = direct.admin.command("serverStatus")
            counts[member.address] = status["metrics"]["commands"]["find"]["total"]
    return counts


def test_secondary_reads_are_read_from_a_secondary(proxies: list[ProxyProcess], three: ReplicaSet) -> None:
    """``$readPreference`` as against a mongos, also for the ``getMore`` of such a cursor on any connection."""
    database = f"secondary_{ObjectId()}"
    with proxies[0].client() as client:
        db = client.get_database(database, write_concern=WriteConcern(w=3))
        db.plain.insert_many([{"_id": index} for index in range(50)])
        primary = three.await_primary()

        before = served(three)
        reading = client[database].plain.with_options(read_preference=Secondary())
        for _ in range(10):
            assert len(list(reading.find({}, batch_size=7))) == 50
        after = served(three)
        grown = {address: after[address] - before[address] for address in after}
        assert sum(grown[address] for address in grown if address != primary.address) >= 10, grown
        assert client[database].plain.with_options(read_preference=Secondary()).count_documents({}) == 50
        drop(client, database)


@pytest.mark.parametrize("preference", [Secondary(), Secondary(tag_sets=[{"dc": "nowhere"}]), Nearest()], ids=str)
def test_logged_in_clients_read_from_the_primary_whatever_they_prefer(
    preference: Any, guarded_set: ReplicaSet, login_uri: str
) -> None:
    """Authentication is valid on one member only. What they get is as fresh as can be: nobody waits for a secondary."""
    guarded_set.heal()
    database = f"preferring_{ObjectId()}"
    with connect(login_uri) as client:
        db = client[database]
        db.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        primary = guarded_set.await_primary()
        before = served(guarded_set)
        for number in range(10):
            db.plain.insert_one({"_id": number})
            db.ts.insert_one({"t": START, "m": number})
            for name in ("plain", "ts"):
                found = list(db[name].with_options(read_preference=preference).find())
                assert len(found) == number + 1
        after = served(guarded_set)
        assert after[primary.address] - before[primary.address] >= 15
        client.drop_database(database)
