"""The primary steps down, or is killed, under everything that applications do: none of them gets to know.

With ``retryReads`` and ``retryWrites``, the defaults of drivers, the only errors are those of commands that no driver
sends again, and these say what happened.
"""

from __future__ import annotations

import pytest
from bson import ObjectId
from pymongo.errors import AutoReconnect, WriteConcernError
from pymongo.write_concern import WriteConcern

from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet
from tests.topology.load import START, TIMESERIES, Load

pytestmark = pytest.mark.timeout(300)


def run_through(way: str, members: ReplicaSet, proxy: ProxyProcess, uri: str) -> Load:
    load = Load(uri, f"failover_{ObjectId()}")
    with load:
        load.progress(proxy)
        before = members.await_primary()
        if way == "step down":
            members.step_down()
        else:
            before.kill()
        members.await_primary(other_than=before)
        load.progress(proxy)
    members.heal()
    return load


def nothing_was_noticed(load: Load) -> None:
    with load.client:
        assert load.surprises() == []
        load.check()
        for attempts_left in reversed(range(5)):
            try:
                load.client.drop_database(load.db.name)
            except (AutoReconnect, WriteConcernError):
                # A member that is back may be elected just now, and no driver sends this command again.
                if not attempts_left:
                    raise
            else:
                break


@pytest.mark.parametrize("way", ["step down", "kill"])
def test_applications_do_not_notice(way: str, three: ReplicaSet, proxies: list[ProxyProcess], proxies_uri: str) -> None:
    nothing_was_noticed(run_through(way, three, proxies[0], proxies_uri))


@pytest.mark.parametrize("way", ["step down", "kill"])
def test_applications_that_log_in_do_not_notice(
    way: str, guarded_set: ReplicaSet, guarded_proxies: list[ProxyProcess], login_uri: str
) -> None:
    nothing_was_noticed(run_through(way, guarded_set, guarded_proxies[0], login_uri))


@pytest.mark.parametrize("collection", ["ts", "plain"])
def test_cursor_goes_on_at_the_server_that_stepped_down(
    collection: str, three: ReplicaSet, proxies: list[ProxyProcess]
) -> None:
    """As with a mongos: servers keep cursors over a step-down, and so do drivers."""
    database = f"cursor_{ObjectId()}"
    with proxies[0].client() as client:
        db = client.get_database(database, write_concern=WriteConcern(w=3))
        db.create_collection("ts", timeseries=TIMESERIES)
        db[collection].insert_many([{"_id": number, "t": START, "m": number} for number in range(300)])
        before = three.await_primary()
        with db[collection].find({}, batch_size=20) as rows:
            seen = [next(rows)["_id"]]
            three.step_down()
            three.await_primary(other_than=before)
            db.others.insert_one({})
            seen += [row["_id"] for row in rows]
        assert sorted(seen) == list(range(300))
        client.drop_database(database)
