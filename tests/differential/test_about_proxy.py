"""What a client sees of the proxy when it asks the server for its version and state."""

from __future__ import annotations

from importlib import metadata

import pymongo
import pytest
from pymongo.errors import OperationFailure
from pymongo.server_api import ServerApi

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess


@pytest.mark.parametrize("command", ["buildInfo", "buildinfo", "serverStatus"])
def test_the_proxy_is_named_with_version_and_mode(mongod: MongodProcess, proxy: ProxyProcess, command: str) -> None:
    with proxy.client() as client:
        reply = client.admin.command(command)
    about = reply.pop("tsproxy")
    assert about["version"] == metadata.version("tsproxy")
    assert about["mode"] in ("in_parts", "in_place")
    native = mongod.shared_client.admin.command(command)
    assert set(native) <= set(reply)
    if command != "serverStatus":
        assert reply == native, "tools compare what the server is"


def test_it_can_be_left_out(proxy: ProxyProcess) -> None:
    with proxy.client() as client:
        assert "tsproxy" not in client.admin.command("serverStatus", tsproxy=0)


@pytest.mark.parametrize("command", ["buildInfo", "serverStatus"])
def test_strict_api_is_the_servers_own(mongod: MongodProcess, proxy: ProxyProcess, command: str) -> None:
    refusals = []
    for uri in (mongod.uri, proxy.uri):
        with pymongo.MongoClient[dict[str, object]](uri, server_api=ServerApi("1", strict=True)) as client:
            with pytest.raises(OperationFailure) as caught:
                client.admin.command(command)
            refusals.append((caught.value.code, str(caught.value)))
    assert refusals[0] == refusals[1]
