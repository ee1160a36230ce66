"""The identity of a server process in its reply to hello."""

from __future__ import annotations

from bson import Int64, ObjectId

from proxy.upstream.server_process import process_of


def test_a_reply_may_tell_its_process() -> None:
    process = ObjectId()
    assert process_of({"topologyVersion": {"processId": process, "counter": Int64(0)}}) == process.binary


def test_older_servers_and_others_tell_none() -> None:
    for hello in ({}, {"topologyVersion": 1}, {"topologyVersion": {}}, {"topologyVersion": {"processId": "x"}}):
        assert process_of(hello) == b""
