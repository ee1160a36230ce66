from __future__ import annotations

import struct
import tracemalloc
import zlib

import bson
import cramjam
import pytest

from proxy.wire import op_compressed, op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import Message, Opcode
from tests.support.raw_wire import compressed, framed

RAW = op_msg.build(9, 0, bson.encode({"ping": 1, "padding": "x" * 900, "$db": "admin"}))
ALL = (1, 2, 3)


def unwrapped(raw: bytes, limit: int = MAX_MESSAGE_SIZE_BYTES) -> Message:
    return op_compressed.unwrap(Message.from_bytes(raw), limit)


@pytest.mark.parametrize("compressor", ALL)
def test_wrapped_message_comes_back(compressor: int) -> None:
    wrapped = op_compressed.wrap(RAW, compressor)
    assert len(wrapped) < len(RAW)
    message = unwrapped(wrapped)
    assert (message.raw, message.compressor, message.opcode) == (RAW, compressor, Opcode.MSG)


@pytest.mark.parametrize("compressor", ALL)
def test_a_large_message_is_expanded_with_rests(compressor: int) -> None:
    """So that other threads do not wait for all of it."""
    raw = op_msg.build(9, 0, bson.encode({"ping": 1, "rows": ["x" * 900 + str(i) for i in range(4_000)]}))
    wrapped = Message.from_bytes(op_compressed.wrap(raw, compressor))
    rested: list[None] = []
    message = op_compressed.unwrap(wrapped, MAX_MESSAGE_SIZE_BYTES, rest=lambda: rested.append(None))
    assert (message.raw, message.compressor, message.opcode) == (raw, compressor, Opcode.MSG)
    assert len(rested) == -(-(len(raw) - 16) // (256 * 1024))


@pytest.mark.parametrize("compressor", ALL)
@pytest.mark.parametrize("wrong", ["cut off", "longer", "shorter", "garbage"])
def test_a_large_message_that_is_wrong_closes(compressor: int, wrong: str) -> None:
    raw = framed(2013, bytes(range(256)) * 8_000)
    whole = op_compressed.squeeze(raw[16:], compressor)
    damaged = {"cut off": whole[:-4], "garbage": b"garbage!" * 100}.get(wrong, whole)
    size = len(raw) - 16 + {"longer": -1, "shorter": 100}.get(wrong, 0)
    with pytest.raises(ProtocolError):
        unwrapped(compressed(raw, compressor, squeezed=damaged, size=size))


def test_small_message_is_not_worth_it() -> None:
    small = op_msg.build(9, 0, bson.encode({"ok": 1.0}))
    assert op_compressed.wrap(small, 2) == small


@pytest.mark.parametrize("compressor", ALL)
@pytest.mark.parametrize("content", [b"", b"garbage!"])
def test_what_cannot_be_decompressed_closes(compressor: int, content: bytes) -> None:
    with pytest.raises(ProtocolError):
        unwrapped(compressed(RAW, compressor, squeezed=content))


@pytest.mark.parametrize("compressor", ALL)
def test_cut_off_stream_closes(compressor: int) -> None:
    whole = op_compressed.squeeze(RAW[16:], compressor)
    with pytest.raises(ProtocolError):
        unwrapped(compressed(RAW, compressor, squeezed=whole[:-4]))


@pytest.mark.parametrize("compressor", ALL)
def test_more_than_announced_closes(compressor: int) -> None:
    with pytest.raises(ProtocolError):
        unwrapped(compressed(RAW, compressor, size=len(RAW) - 16 - 1))


@pytest.mark.parametrize("compressor", ALL)
def test_less_than_announced_closes(compressor: int) -> None:
    """6.0.5 goes on with what happens to stand in its buffer."""
    with pytest.raises(ProtocolError):
        unwrapped(compressed(RAW, compressor, size=len(RAW) + 100))


@pytest.mark.parametrize("size", [-1, MAX_MESSAGE_SIZE_BYTES])
def test_announced_size_is_checked_first(size: int) -> None:
    with pytest.raises(ProtocolError):
        unwrapped(compressed(RAW, 2, size=size))


@pytest.mark.parametrize("compressor", [0, 9])
def test_compressor_that_is_not_in_use_closes(compressor: int) -> None:
    with pytest.raises(ProtocolError):
        unwrapped(framed(2012, struct.pack("<iiB", 2013, len(RAW) - 16, compressor) + RAW[16:]))


def test_compressed_inside_compressed_closes() -> None:
    with pytest.raises(ProtocolError):
        unwrapped(compressed(op_compressed.wrap(RAW, 2), 2))


def test_message_without_its_head_closes() -> None:
    with pytest.raises(ProtocolError):
        unwrapped(framed(2012, b"\0\0\0"))


@pytest.mark.parametrize("compressor", ALL)
def test_bomb_never_gets_more_memory_than_it_announced(compressor: int) -> None:
    squeeze = {1: cramjam.snappy.compress_raw, 2: zlib.compress, 3: cramjam.zstd.compress}[compressor]
    bomb = compressed(RAW, compressor, size=1000, squeezed=bytes(squeeze(bytes(64 << 20))))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            unwrapped(bomb)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * len(bomb) + 1_000_000
