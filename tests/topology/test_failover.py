"""The primary steps down, or is killed, under everything that applications do: none of them gets to know.

With ``retryReads`` and ``retryWrites``, the defaults of drivers, the only errors are those of commands that no driver
sends again, and these say what happened.
"""

from __future__ import annotations

import pytest
from bson import ObjectId

from tests.support.proxy import ProxyProcess
from tests.support.replica_set import ReplicaSet
from tests.topology.load import Load

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


@pytest.mark.parametrize("way", ["step down", "kill"])
def test_applications_do_not_notice(way: str, three: ReplicaSet, proxies: list[ProxyProcess], proxies_uri: str) -> None:
    load = run_through(way, three, proxies[0], proxies_uri)
    assert load.surprises() == []
    load.check()
    load.client.drop_database(load.db.name)
    load.client.close()


@pytest.mark.parametrize("way", ["step down", "kill"])
def test_applications_that_log_in_do_not_notice(
    way: str, guarded_set: ReplicaSet, guarded_proxies: list[ProxyProcess], login_uri: str
) -> None:
    load = run_through(way, guarded_set, guarded_proxies[0], login_uri)
    assert load.surprises() == []
    load.check()
    load.client.drop_database(load.db.name)
    load.client.close()
