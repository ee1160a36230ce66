"""What the driver's monitoring tells of the members."""

from __future__ import annotations

from typing import Any

from bson import Int64, ObjectId
from pymongo.hello import Hello
from pymongo.monitoring import ServerHeartbeatFailedEvent, ServerHeartbeatSucceededEvent

from proxy.backend.member_watch import MemberWatch

OLD, NEW = ObjectId(), ObjectId()


def test_only_a_change_of_the_primary_is_news() -> None:
    watch, record_cluster_time = MemberWatch(), []
    watch.follow(lambda address, is_primary: record_cluster_time.append((address, is_primary)))
    watch.failed(ServerHeartbeatFailedEvent(0.1, OSError(), ("a", 1), False))
    assert record_cluster_time == []
    primary = Hello({"ok": 1, "setName": "rs0", "isWritablePrimary": True, "hosts": ["a:1"], "maxWireVersion": 17})
    for _ in range(2):
        watch.succeeded(ServerHeartbeatSucceededEvent(0.1, primary, ("a", 1), False))
    assert record_cluster_time == [("a:1", True)]
    watch.failed(ServerHeartbeatFailedEvent(0.1, OSError(), ("a", 1), False))
    assert record_cluster_time == [("a:1", True), ("a:1", False)]


def heard(watch: MemberWatch, address: tuple[str, int], process: ObjectId | None, *, is_primary: bool = True) -> None:
    """The member has answered."""
    said: dict[str, Any] = {"ok": 1, "setName": "rs0", "isWritablePrimary": is_primary, "hosts": ["a:1", "b:1"]}
    if process is not None:
        said["topologyVersion"] = {"processId": process, "counter": Int64(1)}
    watch.succeeded(ServerHeartbeatSucceededEvent(0.1, Hello(said), address, False))


def test_a_process_is_gone_when_another_answers_at_its_address() -> None:
    watch, gone = MemberWatch(), list[bytes]()
    watch.follow_processes(gone.append)
    heard(watch, ("a", 1), OLD)
    heard(watch, ("b", 1), NEW)
    # A lost connection, a server that tells nothing, and a step-down end no process.
    watch.failed(ServerHeartbeatFailedEvent(0.1, OSError(), ("a", 1), False))
    heard(watch, ("a", 1), None)
    heard(watch, ("a", 1), OLD, is_primary=False)
    assert gone == []
    heard(watch, ("a", 1), ObjectId())
    assert gone == [OLD.binary]
