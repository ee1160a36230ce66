from __future__ import annotations

from proxy.wire import limits
from tests.support.mongod import MongodProcess


def test_limits_are_the_server_s(mongod: MongodProcess) -> None:
    hello = mongod.shared_client.admin.command("hello")
    assert hello["maxMessageSizeBytes"] == limits.MAX_MESSAGE_SIZE_BYTES
