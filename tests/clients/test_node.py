"""The Node driver through the proxy."""

from __future__ import annotations

import json

import pytest

from tests.support.node import CLIENTS, node
from tests.support.proxy import ProxyProcess

pytestmark = [pytest.mark.drivers, pytest.mark.timeout(700)]


def test_node_driver_does_the_basics(proxy: ProxyProcess, db_name: str) -> None:
    result = json.loads(node(CLIENTS / "basics.mjs", proxy.uri, db_name))
    assert result == {
        "one": True,
        "many": 99,
        "values": list(range(100)),
        "sums": [{"_id": rest, "sum": sum(range(rest, 100, 3))} for rest in range(3)],
        "counted": 10,
        "estimated": 100,
        "devices": [0, 1, 2],
        "missingTime": 2,
        "type": "timeseries",
        "dropped": True,
        "left": 0,
    }
