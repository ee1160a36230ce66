"""What clients say of themselves; that the codes are a server's is in tests/differential/test_types.py."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import SON

from catalog.bson.raw import OBJECT
from catalog.errors import CommandError
from proxy.request.client_metadata import check_metadata, without_our_name

GOOD: dict[str, Any] = {"driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"}}


def named(name: Any) -> dict[str, Any]:
    return {"application": {"name": name, "more": 1}, **GOOD}


@pytest.mark.parametrize("metadata", [GOOD, named("x" * 128), {**GOOD, "platform": "x" * 900}], ids=str)
def test_metadata_as_drivers_send_them_are_taken(metadata: dict[str, Any]) -> None:
    check_metadata(OBJECT, bson.encode(metadata))


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({}, 183),
        ({"driver": 1, "os": {"type": "x"}}, 14),
        ({**GOOD, "os": {}}, 183),
        ({**GOOD, "driver": {"name": 1, "version": "1"}}, 14),
        ({**GOOD, "application": 1}, 14),
        (named(1), 14),
        (named("x" * 129), 184),
        ({**GOOD, "platform": "x" * 1024}, 185),
    ],
    ids=str,
)
def test_other_metadata_are_refused(metadata: dict[str, Any], code: int) -> None:
    with pytest.raises(CommandError) as caught:
        check_metadata(OBJECT, bson.encode(metadata))
    assert caught.value.code == code


def test_bytes_that_are_no_document_are_refused() -> None:
    for broken in (b"\x0a\0\0\0\xfex\0\0\0\0", b"\x0c\0\0\0\3driver\0\0"):
        with pytest.raises(CommandError) as caught:
            check_metadata(OBJECT, broken)
        assert caught.value.code == 22
    with pytest.raises(CommandError):
        check_metadata(2, b"x")


@pytest.mark.parametrize("name", ["tsproxy", "tsproxy 0a0b0c0d0e0f", "tsproxy" + "ä" * 60])
def test_nobody_bears_the_name_of_a_proxy(name: str) -> None:
    said = bson.decode(without_our_name(bson.encode(named(name))))
    assert said["application"]["name"].startswith("client tsproxy")
    assert len(said["application"]["name"].encode()) <= 128
    assert said["application"]["more"] == 1
    assert {key: said[key] for key in GOOD} == GOOD


def test_a_name_that_stands_twice_is_replaced_twice() -> None:
    twice = bson.encode(SON(named("tsproxy 1")))
    inner = bson.encode({"name": "tsproxy 1"})[4:-1]
    raw = twice.replace(bson.encode({"name": "tsproxy 1", "more": 1}), _with(inner, inner))
    raw = len(raw).to_bytes(4, "little") + raw[4:]
    assert b"\0tsproxy" not in without_our_name(raw).replace(b"name\0", b"")


def _with(*elements: bytes) -> bytes:
    inside = b"".join(elements)
    return (len(inside) + 5).to_bytes(4, "little") + inside + b"\0"


@pytest.mark.parametrize("metadata", [GOOD, named("my app"), named("my tsproxy")], ids=str)
def test_other_names_stay(metadata: dict[str, Any]) -> None:
    raw = bson.encode(metadata)
    assert without_our_name(raw) == raw
