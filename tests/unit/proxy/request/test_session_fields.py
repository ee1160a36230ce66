"""What a client asks for, and the session that it asks in (X1, X2, W102)."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64
from bson.binary import Binary

from catalog.bson.faithful import Opaque
from proxy.request.session_fields import Undecodable, checked_session_of, session_of, take_apart
from rewrite.statements import statement_of
from tests.support.operands import SCALARS, array_of, object_of, value_of

LSID = {"id": bson.Binary(bytes(16), 4)}


def apart(**body: Any) -> Any:
    """The parts of a command without document sequences."""
    return take_apart(bson.encode(body), (), next(iter(body)))


def extra_of(raw: bytes) -> dict[str, Any]:
    """Raw elements as a document."""
    return bson.decode((len(raw) + 5).to_bytes(4, "little") + raw + b"\0")


def test_the_session_travels_apart_from_the_command() -> None:
    fields = apart(find="x", filter={"v": 1}, lsid=LSID, **{"$db": "db", "$readPreference": {"mode": "primary"}})
    assert fields.body == {"find": "x", "filter": {"v": 1}}
    assert list(extra_of(fields.extra())) == ["lsid", "$readPreference"]
    assert not fields.in_transaction
    assert not fields.has_txn_number


def test_document_sequences_are_arguments_like_any_other() -> None:
    sequences = (("deletes", (bson.encode({"q": {}, "limit": 0}),)),)
    fields = take_apart(bson.encode({"delete": "x", "ordered": True}), sequences)
    assert fields.body == {"delete": "x", "ordered": True, "deletes": [{"q": {}, "limit": 0}]}


def test_x1_in_a_transaction_every_step_belongs_to_it_and_the_first_starts_it() -> None:
    fields = apart(find="x", lsid=LSID, txnNumber=Int64(3), autocommit=False, startTransaction=True)
    assert fields.in_transaction
    assert list(extra_of(fields.extra())) == ["lsid", "txnNumber", "autocommit", "startTransaction"]
    assert list(extra_of(fields.extra(starts_transaction=False))) == ["lsid", "txnNumber", "autocommit"]


@pytest.mark.parametrize(
    ("odd", "refused_in_a_write"),
    [
        ({"startTransaction": True}, True),
        ({"startTransaction": False, "txnNumber": Int64(3)}, True),
        ({"autocommit": True}, True),
        ({"autocommit": True, "txnNumber": Int64(3)}, True),
        ({"txnNumber": Int64(3)}, False),
        ({"autocommit": False}, None),
        ({"stmtId": 1}, None),
        ({"stmtIds": [1]}, False),
        ({"stmtIds": [1], "autocommit": False}, False),
    ],
    ids=str,
)
def test_x1_transaction_fields_that_the_backend_refuses(odd: dict[str, Any], refused_in_a_write: bool | None) -> None:
    """``None``: in no command; in a transaction, they are all sent on, and the backend judges them."""
    for name, refused in (("find", refused_in_a_write is not None), ("delete", bool(refused_in_a_write))):
        body = {name: "x", "lsid": LSID, **odd}
        assert session_of(bson.encode(body)).refused_in(name) is refused
        if refused:
            with pytest.raises(Undecodable):
                apart(**body)
            with pytest.raises(Undecodable):
                checked_session_of(bson.encode(body), name)
        else:
            assert apart(**body).body == {name: "x"}
            assert checked_session_of(bson.encode(body), name) == session_of(bson.encode(body))


def test_x2_only_the_step_that_writes_carries_the_number_of_a_retryable_write() -> None:
    fields = apart(delete="x", lsid=LSID, txnNumber=Int64(3), stmtIds=[7])
    assert fields.has_txn_number
    assert not fields.in_transaction
    assert fields.statement_ids == (7,)
    assert list(extra_of(fields.extra())) == ["lsid"]
    assert extra_of(fields.extra(7)) == {"lsid": LSID, "txnNumber": 3, "stmtId": 7}
    assert fields.service_extra(7, {"id": 1}) == {"lsid": {"id": 1}, "txnNumber": 3, "stmtId": 7}


def test_session_that_is_none_is_the_backends_to_refuse() -> None:
    for given in ({"id": 1}, {}, 5, {"id": Binary(b"x" * 16, 3)}, {"id": Binary(b"x", 4)}):
        with pytest.raises(Undecodable):
            apart(delete="x", lsid=given, txnNumber=Int64(3))
    assert apart(delete="x", txnNumber=Int64(3)).own_session is None
    assert apart(delete="x", lsid={"id": Binary(b"x" * 16, 4)}).own_session is not None


LOSSY = object_of({"x": SCALARS["undefined"]})


@pytest.mark.parametrize("name", sorted({"undefined", "symbol", "pointer", "reference", "bad text"}))
def test_what_would_come_back_as_something_else_is_the_backends(name: str) -> None:
    for fields in ({"filter": object_of({"x": SCALARS[name]})}, {"let": array_of(object_of({"x": SCALARS[name]}))}):
        with pytest.raises(Undecodable):
            take_apart(object_of({"find": value_of("x"), **fields})[1:], (), "find")


def test_u8_a_delete_keeps_what_cannot_be_decoded_as_it_came() -> None:
    statement = object_of({"q": LOSSY, "limit": value_of(0)})
    inside = take_apart(object_of({"delete": value_of("x"), "deletes": array_of(statement)})[1:], (), "delete")
    beside = take_apart(bson.encode({"delete": "x"}), (("deletes", (statement[1:],)),), "delete")
    for fields in (inside, beside):
        (found,) = map(statement_of, fields.body["deletes"])
        assert found["q"].raw == LOSSY[1:]
        assert found["limit"] == 0


def test_u8_a_find_and_modify_does_so_too() -> None:
    asked = object_of({"findAndModify": value_of("x"), "query": LOSSY, "remove": value_of(True)})[1:]
    fields = take_apart(asked, (), "findAndModify")
    assert isinstance(fields.body["query"], Opaque)
    assert fields.body["remove"] is True


def test_what_rewriters_have_to_understand_must_be_decodable() -> None:
    for fields in ({"writeConcern": LOSSY}, {"ordered": SCALARS["undefined"]}, {"let": array_of(LOSSY)}):
        with pytest.raises(Undecodable):
            take_apart(object_of({"delete": value_of("x"), **fields})[1:], (), "delete")
    with pytest.raises(Undecodable):
        take_apart(bson.encode({"delete": "x"}), (("others", (LOSSY[1:],)),), "delete")


def test_w98_what_is_too_large_is_not_decoded_but_a_delete_is_taken_in_pieces() -> None:
    large = {"$or": [{"v": number} for number in range(20_000)]}
    with pytest.raises(Undecodable):
        apart(find="x", filter=large)
    fields = take_apart(
        bson.encode({"delete": "x"}), (("deletes", (bson.encode({"q": large, "limit": 0}),)),), "delete"
    )
    (found,) = map(statement_of, fields.body["deletes"])
    assert isinstance(found["q"], Opaque)
    with pytest.raises(Undecodable):
        take_apart(bson.encode({"delete": "x", **{f"field {number}": 1 for number in range(50_000)}}), (), "delete")


@pytest.mark.parametrize("value", [5, "x", [1, "x"], [[]], {"0": 1}, [True]])
def test_w102_statement_ids_that_are_none_are_the_backends_to_judge(value: Any) -> None:
    with pytest.raises(Undecodable):
        _ = apart(delete="x", stmtIds=value).statement_ids
