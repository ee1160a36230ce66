"""The latest cluster times (W90)."""

from __future__ import annotations

from typing import Any

import bson
from bson import Timestamp

from proxy.backend.cluster_times import ClusterTimes


def told(seconds: int) -> dict[str, Any]:
    return {"$clusterTime": {"clusterTime": Timestamp(seconds, 2)}, "operationTime": Timestamp(seconds, 1), "ok": 1.0}


def known(times: ClusterTimes) -> dict[str, Any]:
    elements = times.elements()
    return bson.decode((len(elements) + 5).to_bytes(4, "little") + elements + b"\0")


def test_a_server_that_is_alone_tells_none() -> None:
    times = ClusterTimes()
    times.hear({"n": 1, "ok": 1.0})
    assert times.elements() == b""


def test_w90_the_latest_are_kept_in_whatever_order_replies_come() -> None:
    times = ClusterTimes()
    for seconds, latest in ((5, 5), (7, 7), (6, 7)):
        times.hear(told(seconds))
        assert known(times)["operationTime"] == Timestamp(latest, 1)
    assert known(times) == {name: told(7)[name] for name in ("$clusterTime", "operationTime")}


def test_a_raw_reply_tells_the_same() -> None:
    times = ClusterTimes()
    times.hear_raw(bson.encode({"cursor": {"firstBatch": []}, **told(5)}))
    assert known(times) == {name: told(5)[name] for name in ("$clusterTime", "operationTime")}
    times.hear_raw(bson.encode({"ok": 1.0}))
    assert known(times)["operationTime"] == Timestamp(5, 1)


def test_each_is_kept_by_itself() -> None:
    times = ClusterTimes()
    times.hear(told(5))
    times.hear({"operationTime": Timestamp(6, 1), "$clusterTime": {"clusterTime": Timestamp(4, 1)}})
    assert known(times) == {"$clusterTime": told(5)["$clusterTime"], "operationTime": Timestamp(6, 1)}


def test_what_is_no_time_is_left_out() -> None:
    times = ClusterTimes()
    times.hear({"operationTime": 5, "$clusterTime": {"clusterTime": 5}})
    assert times.elements() == b""
