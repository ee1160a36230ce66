"""The ids of a process's buckets, and how it recognises them."""

from __future__ import annotations

import os

import pytest
from bson import ObjectId

from proxy.process.process_ids import ProcessIds

START = bytes(4)


def test_w11_ids_count_up_from_anywhere() -> None:
    ids = ProcessIds()
    first, second = ids.suffix(), ids.suffix()
    assert int.from_bytes(second[:5], "big") == (int.from_bytes(first[:5], "big") + 1) % (1 << 40)
    assert first[5:] == second[5:] == bytes(3)
    assert ProcessIds().suffix()[:3] != first[:3]


def test_buckets_and_their_parts_are_recognised() -> None:
    ids, others = ProcessIds(), ProcessIds()
    made = [START + ids.suffix() for _ in range(3)]
    assert all(ids.made(each) and ids.made(each[:9] + b"\0\1\2") for each in made)
    assert not any(others.made(each) for each in made)
    assert not ids.made(START + others.suffix())
    assert not ids.made(ObjectId().binary)


def test_the_counter_may_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\xff" * (size - 1) + b"\xfe")
    ids = ProcessIds()
    assert all(ids.made(START + ids.suffix()) for _ in range(4))
    assert not ids.made(START + b"\0\0\0\0\3" + bytes(3))
