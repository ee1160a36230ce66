"""What a client asks for, and the session that it asks in (X1, X2, W102)."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64
from bson.binary import Binary

from proxy.request.session_fields import Undecodable, take_apart

LSID = {"id": bson.Binary(bytes(16), 4)}


def apart(**body: Any) -> Any:
    """The parts of a command without document sequences."""
    return take_apart(bson.encode(body), ())


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
