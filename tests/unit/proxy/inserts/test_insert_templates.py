"""An insert whose body is known is recognised, and only when the whole message is sound."""

from __future__ import annotations

import bson
import pytest

from catalog.identity import identity_of
from proxy.request.command import parse_command
from proxy.request.recognition import LONGEST_BODY_BYTES
from proxy.request.router import UNRESOLVED
from proxy.wire.message import Message
from proxy.wire.op_msg import MOST_DOCUMENTS
from tests.support.insert_messages import COLLECTION, DOCUMENTS, message, remembering, retryable


@pytest.mark.parametrize("count", [1, 2, 3])
def test_same_body_with_other_documents_is_recognised(count: int) -> None:
    inserts = remembering(message(DOCUMENTS[2]))
    found = inserts.find(message(*DOCUMENTS[:count]))
    assert found is not None
    assert found.txn_number is None
    assert found.documents == DOCUMENTS[:count]
    assert found.template.collection is COLLECTION
    assert found.template.insert.ordered


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
    for size in range(16, len(raw)):
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
            assert found.documents == (DOCUMENTS[0],)
            parsed = parse_command(Message.from_bytes(raw))
            assert found.txn_number == parsed.get("txnNumber")
            assert found.session == parsed.raw(b"lsid")


def test_each_insert_has_its_own_session() -> None:
    inserts = remembering(retryable(1))
    for number in (5, 6):
        found = inserts.find(retryable(3, session_id=bytes([number]) * 16))
        assert found is not None
        assert found.session == bson.encode({"id": bson.Binary(bytes([number]) * 16, 4)})
        assert found.template.command(found.documents, found.session, 3).session == found.session


def test_writers_of_two_users_do_not_share_batches() -> None:
    template = remembering(retryable(1)).submitted[0].template
    users = [identity_of([(name, "admin")]) for name in ("a", "b", "a")]
    keys = [template.key(user) for user in users]
    assert [key.identity for key in keys] == users
    assert keys[0] == keys[2] != keys[1]


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
    """Where values stand is looked up by the length; the bytes that stay tell whether it is so."""
    first = retryable(7, comment=bson.Int64(7))
    second = retryable(7, commenu=bson.Int64(7))
    assert len(first) == len(second)
    assert remembering(first).find(second) is None


def test_numbered_statements_and_unanswered_inserts_are_not_remembered() -> None:
    raw = retryable(1, stmtId=5)
    assert remembering(raw).find(raw) is None
    raw = message(DOCUMENTS[0], flags=2)
    assert remembering(raw).find(message(DOCUMENTS[0])) is None


def test_documents_in_the_body_are_not_remembered() -> None:
    raw = message(body={"insert": "x", "documents": [{"t": 1}], "$db": "d"})[: -len(b"\1\0\0\0\0documents\0")]
    raw = len(raw).to_bytes(4, "little") + raw[4:]
    inserts = remembering(raw)
    assert len(inserts.memory) == 0


@pytest.mark.parametrize("allowed", [None, False])
def test_client_that_may_not_takes_the_ordinary_way(allowed: bool | None) -> None:
    inserts = remembering(message(DOCUMENTS[0]))
    inserts.allowed = allowed
    assert inserts.find(message(DOCUMENTS[0])) is None


def test_collection_that_is_another_takes_the_ordinary_way() -> None:
    inserts = remembering(message(DOCUMENTS[0]))
    for inserts.found in (None, UNRESOLVED):
        assert inserts.find(message(DOCUMENTS[0])) is None


def test_too_many_documents_are_not_counted_here() -> None:
    """W94: ``proxy.wire.op_msg`` refuses them."""
    inserts = remembering(message(DOCUMENTS[0]))
    assert inserts.recognises(message(*([bson.encode({})] * MOST_DOCUMENTS))) is not None
    assert inserts.recognises(message(*([bson.encode({})] * (MOST_DOCUMENTS + 1)))) is None


def test_memory_is_bounded() -> None:
    inserts = remembering(message(DOCUMENTS[0]), limit_bytes=1)
    other = message(DOCUMENTS[0], body={"insert": "x", "comment": 1, "$db": "d"})
    assert inserts.learn(other)
    assert inserts.find(message(DOCUMENTS[0])) is None
    found = inserts.find(other)
    assert found is not None
    assert found.template.insert.documents == (), "nothing of the documents stays"
    long = message(DOCUMENTS[0], body={"insert": "x", "comment": "x" * LONGEST_BODY_BYTES, "$db": "d"})
    assert remembering(long).find(long) is None
