"""The ids of a process's buckets, and how it recognises them."""

from __future__ import annotations

import os

import pytest
from bson import ObjectId

from catalog.parts import bucket_key, segment_of
from proxy.process.process_ids import ProcessIds

START = bytes(4)


def beginning_with(monkeypatch: pytest.MonkeyPatch, *numbers: bytes) -> ProcessIds:
    """A process whose random numbers are these: its first segment and its first place."""
    left = list(numbers)
    monkeypatch.setattr(os, "urandom", lambda size: left.pop(next(at for at, n in enumerate(left) if len(n) == size)))
    ids = ProcessIds()
    assert left == []
    return ids


def test_w11_places_count_up_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = beginning_with(monkeypatch, b"\x12\x34", b"\0\1\xff")
    assert [ids.suffix() for _ in range(3)] == [
        b"\x12\x34" + place + bytes(3) for place in (b"\0\1\xff", b"\0\2\0", b"\0\2\1")
    ]


def test_w11_processes_begin_anywhere() -> None:
    first = {ProcessIds().suffix()[:5] for _ in range(20)}
    assert len(first) == 20
    assert len({each[:2] for each in first}) > 1
    assert len({each[2:] for each in first}) > 1


def test_segments_count_up_and_places_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a place is that of one bucket, in whatever segment."""
    ids = beginning_with(monkeypatch, b"\0\xff", b"\0\0\1")
    before = START + ids.suffix()
    assert ids.segment() == segment_of(before) == b"\0\xff"
    ids.next_segment()
    after = START + ids.suffix()
    assert ids.segment() == segment_of(after) == b"\1\0"
    assert (bucket_key(before)[4:], bucket_key(after)[4:]) == (b"\0\0\1", b"\0\0\2")


def test_buckets_and_their_parts_are_recognised() -> None:
    ids, others = ProcessIds(), ProcessIds()
    made = [START + ids.suffix() for _ in range(3)]
    assert all(ids.made(each) and ids.made(each[:9] + b"\0\1\2") for each in made)
    assert not any(others.made(each) for each in made)
    assert not ids.made(START + others.suffix())
    assert not ids.made(ObjectId().binary)


def test_parts_are_recognised_in_all_segments_until_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = beginning_with(monkeypatch, b"\xff\xfe", b"\0\0\x08")
    place = ids.suffix()[2:5]
    for _ in range(3):
        ids.next_segment()
    assert ids.segment() == b"\0\1", "they may begin anew"
    for segment in (b"\xff\xfe", b"\xff\xff", b"\0\0", b"\0\1"):
        assert ids.made(START + segment + place + b"\0\0\5")
    for segment in (b"\xff\xfd", b"\0\2"):
        assert not ids.made(START + segment + place + bytes(3))
    for strange in (b"\0\0\7", b"\0\0\x09"):
        assert not ids.made(START + b"\0\0" + strange + bytes(3))


def test_places_may_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any change of the segment."""
    ids = beginning_with(monkeypatch, b"\0\0", b"\xff\xff\xff")
    made = [START + ids.suffix() for _ in range(4)]
    assert [each[6:9] for each in made] == [b"\xff\xff\xff", b"\0\0\0", b"\0\0\1", b"\0\0\2"]
    assert all(map(ids.made, made))
    assert {segment_of(each) for each in made} == {b"\0\0"}
    for strange in (b"\xff\xff\xfe", b"\0\0\3"):
        assert not ids.made(START + b"\0\0" + strange + bytes(3))
