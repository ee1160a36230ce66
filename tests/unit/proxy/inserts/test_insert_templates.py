"""An insert whose body is known is recognised, and only when the whole message is sound."""

from __future__ import annotations

import bson
import pytest

from proxy.inserts.insert_command import parse_insert
from proxy.inserts.insert_templates import LONGEST_BYTES
from proxy.request.command import parse_command
from proxy.wire.message import Message
from tests.support.insert_messages import COLLECTION, DOCUMENTS, message, remembering, retryable


@pytest.mark.parametrize("count", [1, 2, 3])
def test_same_body_with_other_documents_is_recognised(count: int) -> None:
    inserts = remembering(message(DOCUMENTS[2]))
    found = inserts.find(message(*DOCUMENTS[:count]))
    assert found is not None
    repeated, documents, txn_number = found
    assert txn_number is None
    assert tuple(documents) == DOCUMENTS[:count]
    assert repeated.collection is COLLECTION
    assert repeated.insert.ordered
    assert repeated.actions == ("insert",)


@pytest.mark.parametrize(
    "raw",
    [
        message(DOCUMENTS[0], body={"insert": "y", "ordered": True, "$db": "d"}),
        message(DOCUMENTS[0], flags=2),
        message(DOCUMENTS[0], identifier=b"documentz"),
        message(),
        message(DOCUMENTS[0] + b"\0"),
        message(DOCUMENTS[0][:-1]),
        message(b"\x01\0\0\0\0"),
        message(DOCUMENTS[0])[:60],
        message(DOCUMENTS[0])[:20],
        message(DOCUMENTS[0]) + message(DOCUMENTS[0])[20:],
    ],
    ids=["other", "flags", "name", "none", "longer", "shorter", "tiny", "cut", "head", "twice"],
)
def test_anything_else_takes_the_ordinary_way(raw: bytes) -> None:
    assert remembering(message(DOCUMENTS[0])).find(raw) is None


def test_every_cut_of_a_message_is_harmless() -> None:
    raw = message(*DOCUMENTS)
    inserts = remembering(raw)
    for size in range(len(raw)):
        assert inserts.find(raw[:size]) is None


def gossip(second: int, **more: object) -> dict[str, object]:
    return {"clusterTime": bson.Timestamp(second, 1), "signature": {"hash": bytes(20), "keyId": bson.Int64(0)}, **more}


def test_retryable_writes_differ_in_their_number_and_the_cluster_time() -> None:
    """Drivers of replica sets send both with every insert."""
    for known, other in (
        (retryable(1), retryable(1 << 40)),
        (retryable(1, **{"$clusterTime": gossip(1)}), retryable(-2, **{"$clusterTime": gossip(99)})),
    ):
        inserts = remembering(known)
        for raw in (known, other):
            found = inserts.find(raw)
            assert found is not None
            repeated, documents, txn_number = found
            assert documents == (DOCUMENTS[0],)
            assert txn_number == parse_command(Message.from_bytes(raw)).get("txnNumber")
            assert b"s" * 16 in repeated.insert.session


@pytest.mark.parametrize(
    "raw",
    [
        retryable(1),
        retryable(1, **{"$clusterTime": gossip(1, more=1)}),
        retryable(1, **{"$clusterTimE": gossip(1)}),
        message(DOCUMENTS[0], body={"insert": "x", "txnNumber": 1, "lsid": {"id": 1}, "$db": "d"}),
    ],
    ids=["without", "longer", "name", "kind"],
)
def test_other_layouts_are_not_taken_for_known_ones(raw: bytes) -> None:
    assert remembering(retryable(1, **{"$clusterTime": gossip(1)})).find(raw) is None


def test_bodies_of_one_length_and_different_layouts_do_not_mix() -> None:
    """The layout is looked up by the length; the bytes that stay tell whether it is the right one."""
    first = retryable(7, comment=bson.Int64(7))
    second = retryable(7, commenu=bson.Int64(7))
    assert len(first) == len(second)
    assert remembering(first).find(second) is None


def test_numbered_statements_and_unanswered_inserts_are_not_remembered() -> None:
    raw = retryable(1, stmtId=5)
    assert remembering(raw).find(raw) is None
    raw = message(DOCUMENTS[0], flags=2)
    assert remembering(raw).find(message(DOCUMENTS[0])) is None


def test_memory_is_bounded() -> None:
    inserts = remembering(message(DOCUMENTS[0]), limit_bytes=1)
    other = message(DOCUMENTS[0], body={"insert": "x", "comment": 1, "$db": "d"})
    command = parse_command(Message.from_bytes(other))
    insert = parse_insert(command, retryable_writes=True)
    assert insert is not None
    inserts.remember(command, insert, COLLECTION, ())
    assert inserts.find(message(DOCUMENTS[0])) is None
    found = inserts.find(other)
    assert found is not None
    assert found[0].insert.documents == (), "nothing of the documents stays"
    long = message(DOCUMENTS[0], body={"insert": "x", "comment": "x" * LONGEST_BYTES, "$db": "d"})
    assert remembering(long).find(long) is None
