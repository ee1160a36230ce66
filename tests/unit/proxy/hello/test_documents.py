from __future__ import annotations

import math
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId

from catalog.errors import CommandError
from proxy.hello.documents import (
    MAX_WIRE_VERSION,
    TopologyVersion,
    await_time_ms,
    check_types,
    describe,
    negotiate,
    whole_number,
)
from proxy.request.command import Command, parse_command
from proxy.wire.message import Message
from tests.support.raw_wire import command

VERSION = TopologyVersion(ObjectId(), 3)
STANDALONE = {
    "isWritablePrimary": True, "maxBsonObjectSize": 1, "maxMessageSizeBytes": 2, "maxWriteBatchSize": 3,
    "minWireVersion": 0, "maxWireVersion": 17, "readOnly": False,
}  # fmt: skip
REPLICA_SET = {**STANDALONE, "setName": "rs", "hosts": ["a:1"], "me": "a:1", "primary": "a:1", "lastWrite": {}}


def hello(flags: int = 0, **fields: Any) -> Command:
    return parse_command(Message.from_bytes(command({"hello": 1, **fields, "$db": "admin"}, flags=flags)))


def described(backend: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return describe(
        backend, hello(**fields), version=VERSION, connection_id=9, local_time=None, compressors=None, carried={}
    )


def test_standalone_is_presented_as_one() -> None:
    reply = described(STANDALONE)
    assert reply.keys().isdisjoint({"msg", "setName", "helloOk"})
    assert (reply["readOnly"], reply["connectionId"], reply["maxWireVersion"]) == (False, 9, 17)


@pytest.mark.parametrize("backend", [REPLICA_SET, {**STANDALONE, "msg": "isdbgrid"}])
def test_anything_else_is_presented_as_a_mongos(backend: dict[str, Any]) -> None:
    reply = described(backend, helloOk=True)
    assert (reply["msg"], reply["helloOk"]) == ("isdbgrid", True)
    assert reply.keys().isdisjoint({"setName", "hosts", "me", "primary", "lastWrite", "readOnly"})


def test_wire_version_is_the_lower_of_both() -> None:
    assert described({**STANDALONE, "maxWireVersion": 99})["maxWireVersion"] == MAX_WIRE_VERSION


def test_compressors_are_those_that_both_know_in_the_client_s_order() -> None:
    assert negotiate(["zstd", "nonsense", "zlib", 5], ("snappy", "zlib", "zstd")) == ("zstd", "zlib")
    assert negotiate(None, ("zlib",)) == ()
    assert negotiate(["zlib", "zstd"] * 1000, ("zlib", "zstd")) == ("zlib", "zstd")


def test_client_that_knows_this_state_waits() -> None:
    assert await_time_ms(hello(), VERSION) is None
    known = {"topologyVersion": VERSION.document(), "maxAwaitTimeMS": Int64(500)}
    assert await_time_ms(hello(**known), VERSION) == 500
    older = {"topologyVersion": TopologyVersion(VERSION.process_id, 2).document(), "maxAwaitTimeMS": Int64(500)}
    assert await_time_ms(hello(**older), VERSION) == 0
    other = {"topologyVersion": TopologyVersion(ObjectId(), 9).document(), "maxAwaitTimeMS": Int64(500)}
    assert await_time_ms(hello(**other), VERSION) == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topologyVersion": VERSION.document()}, 31368),
        ({"maxAwaitTimeMS": 5}, 31368),
        ({"topologyVersion": 5, "maxAwaitTimeMS": 5}, 14),
        ({"topologyVersion": VERSION.document(), "maxAwaitTimeMS": "x"}, 14),
        ({"topologyVersion": {"processId": VERSION.process_id}, "maxAwaitTimeMS": 5}, 40414),
        ({"topologyVersion": {**VERSION.document(), "x": "x" * 70_000}, "maxAwaitTimeMS": 5}, 40415),
        ({"internalClient": {"minWireVersion": 0, "maxWireVersion": 17, "x": "x" * 70_000}}, 40415),
        ({"topologyVersion": VERSION.document(), "maxAwaitTimeMS": -1}, 51024),
        ({"topologyVersion": {**VERSION.document(), "counter": Int64(-1)}, "maxAwaitTimeMS": 5}, 31372),
        ({"topologyVersion": {**VERSION.document(), "counter": Int64(4)}, "maxAwaitTimeMS": 5}, 51764),
    ],
)
def test_faulty_waits_are_refused_as_by_the_server(fields: dict[str, Any], code: int) -> None:
    def judged() -> None:
        check_types(hello(**fields))
        await_time_ms(hello(**fields), VERSION)

    with pytest.raises(CommandError) as caught:
        judged()
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7), (7.9, 7), (-7.9, -7), (math.nan, 0), (math.inf, 2**63 - 1), (-math.inf, -(2**63)),
        (1e300, 2**63 - 1024),
        (Decimal128("7.9"), 7), (Decimal128("NaN"), 0), (Decimal128("Infinity"), 2**63 - 1),
    ],
)  # fmt: skip
def test_numbers_of_every_type_are_whole_ones(value: Any, number: int) -> None:
    assert whole_number(value) == number


def test_stream_without_a_period_is_refused() -> None:
    with pytest.raises(CommandError) as caught:
        await_time_ms(hello(flags=1 << 16), VERSION)
    assert caught.value.code == 51756


def test_time_of_the_cluster_is_gossiped() -> None:
    backend = {**REPLICA_SET, "$clusterTime": {"clusterTime": 1}, "operationTime": 2}
    reply = described(backend)
    assert list(reply)[-3:] == ["ok", "$clusterTime", "operationTime"]
