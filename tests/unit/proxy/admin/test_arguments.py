"""What is wrong with an admin command is found before anything is done; tests/clients/test_admin.py has the texts."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Int64

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.admin.arguments import call_of
from proxy.admin.table import COMMANDS
from tests.support.admin_calls import Asking
from tests.support.raw_wire import body, op_msg_bytes, sequence

KNOWN = {name: COMMANDS[name] for name in ("help", "kill", "pause", "buckets", "resume")}


@pytest.mark.parametrize("value", [7, Int64(7), 7.0])
def test_whole_numbers_have_any_type_of_number(value: Any) -> None:
    call = Asking().call("kill", connection=value)
    assert (call.fields, type(call.fields["connection"])) == ({"connection": 7}, int)


def test_fields_that_drivers_add_are_none() -> None:
    call = Asking().call("kill", connection=1, lsid={}, comment=[1], maxTimeMS=5, **{"$readPreference": {}})
    assert set(call.fields) == {"connection"}


def test_values_of_any_type_stay_raw() -> None:
    call = Asking().call("buckets", collection="d.c.e", meta="ab")
    assert call.fields["meta"] == b"\x02\x03\0\0\0ab\0"
    assert call.namespace == Namespace("d", "c.e")
    assert Asking().call("buckets", collection="d.system.buckets.c").namespace == Namespace("d", "c")


def test_numbers_have_defaults() -> None:
    call = Asking().call("pause", limitSeconds=2)
    assert (call.number("limitSeconds", 9), call.number("waitSeconds", 9)) == (2.0, 9)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"tsproxy": "help", "$db": "d"}, 13),
        ({"tsproxy": "nothing"}, 2),
        ({"tsproxy": "clients"}, 2),
        ({"tsproxy": None}, 14),
        ({"tsproxy": "help", "a": 1}, 40415),
        ({"tsproxy": "kill"}, 40414),
        ({"tsproxy": "kill", "connection": None}, 14),
        ({"tsproxy": "kill", "connection": Decimal128("1")}, 14),
        ({"tsproxy": "kill", "connection": float("nan")}, 2),
        ({"tsproxy": "kill", "connection": -1}, 2),
        ({"tsproxy": "pause", "limitSeconds": float("inf")}, 2),
        ({"tsproxy": "resume", "force": "yes"}, 14),
        ({"tsproxy": "help", "autocommit": False}, 263),
        ({"tsproxy": "help", "apiStrict": True}, 323),
        ({"tsproxy": "help", "comment": "x" * 70_000}, 2),
    ],
    ids=str,
)
def test_mistakes_have_codes(document: dict[str, Any], code: int) -> None:
    exchange = Asking().exchange(document)
    with pytest.raises(CommandError) as raised:
        call_of(exchange, exchange.parsed(), KNOWN)
    assert raised.value.code == code


def test_document_sequences_are_refused() -> None:
    raw = op_msg_bytes(body({"tsproxy": "help", "$db": "admin"}), sequence("a", {}))
    exchange = Asking().exchange(raw)
    with pytest.raises(CommandError, match="or have document sequences"):
        call_of(exchange, exchange.parsed(), KNOWN)


@pytest.mark.parametrize("name", ["", "c", "d.", ".c"])
def test_a_collection_is_named_with_its_database(name: str) -> None:
    with pytest.raises(CommandError) as raised:
        _ = Asking().call("buckets", collection=name).namespace
    assert raised.value.code == 73
