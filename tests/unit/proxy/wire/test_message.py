from __future__ import annotations

from proxy.wire.message import OPCODES, Message, Opcode, frame


def test_header_is_four_little_endian_integers() -> None:
    raw = frame(Opcode.MSG, 5, 6, b"abc")
    assert raw == bytes.fromhex("13000000 05000000 06000000 dd070000") + b"abc"
    message = Message.from_bytes(raw)
    assert (message.request_id, message.response_to, message.opcode, message.raw) == (5, 6, 2013, raw)
    assert message.compressor == 0


def test_known_opcodes_are_plain_numbers() -> None:
    assert 2013 in OPCODES
    assert 9999 not in OPCODES
