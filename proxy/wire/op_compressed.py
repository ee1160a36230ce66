"""OP_COMPRESSED: a compressed message.

The declared size is checked before memory is allocated, and the output cannot exceed it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import cramjam

from proxy.wire.errors import ProtocolError
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import HEADER, Message, Opcode

_HEAD: Final = struct.Struct("<iiB")
_OPCODE: Final = int(Opcode.COMPRESSED)
_BODY_AT: Final = HEADER_SIZE_BYTES + _HEAD.size

COMPRESSOR_IDS: Final[Mapping[str, int]] = {"noop": 0, "snappy": 1, "zlib": 2, "zstd": 3}

_ZSTD_LEVEL: Final = 3
_MIN_WORTHWHILE_BYTES: Final = 128


def _squeeze_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _squeeze_zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


_SQUEEZE: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: _squeeze_snappy,
    2: zlib.compress,
    3: _squeeze_zstd,
}


def _expand_noop(data: bytes, target: bytearray) -> int:
    if len(data) != len(target):
        raise ProtocolError("noop compression of another size than announced")
    target[:] = data
    return len(data)


def _expand_snappy(data: bytes, target: bytearray) -> int:
    return int(cramjam.snappy.decompress_raw_into(data, target))


def _expand_zlib(data: bytes, target: bytearray) -> int:
    inflater = zlib.decompressobj()
    output = inflater.decompress(data, len(target) + 1)
    if len(output) > len(target) or not inflater.eof:
        raise ProtocolError("zlib stream is longer than announced, or cut off")
    target[: len(output)] = output
    return len(output)


def _expand_zstd(data: bytes, target: bytearray) -> int:
    return int(cramjam.zstd.decompress_into(data, target))


_EXPAND: Final[Mapping[int, Callable[[bytes, bytearray], int]]] = {
    0: _expand_noop,
    1: _expand_snappy,
    2: _expand_zlib,
    3: _expand_zstd,
}


def claimed_bytes(message: Message) -> int:
    """How large the message inside claims to be; 0 for one that is not compressed, or too short to say so."""
    if message.opcode != _OPCODE:
        return 0
    raw = message.raw
    return int(_HEAD.unpack_from(raw, HEADER_SIZE_BYTES)[1]) if len(raw) >= _BODY_AT else 0


def unwrap(message: Message, max_size_bytes: int, allowed: Sequence[int] = (1, 2, 3)) -> Message:
    """The contained message; raises ``ProtocolError`` where a server closes the connection."""
    raw = message.raw
    if len(raw) < _BODY_AT:
        raise ProtocolError("OP_COMPRESSED is too short")
    opcode, size, compressor = _HEAD.unpack_from(raw, HEADER_SIZE_BYTES)
    if compressor not in allowed:
        raise ProtocolError(f"compressor {compressor} is not in use")
    if opcode == Opcode.COMPRESSED:
        raise ProtocolError("OP_COMPRESSED inside OP_COMPRESSED")
    if size < 0 or size + HEADER_SIZE_BYTES > max_size_bytes:
        raise ProtocolError(f"uncompressed size {size} is not allowed")
    target = bytearray(size)
    try:
        written = _EXPAND[compressor](raw[_BODY_AT:], target)
    except (cramjam.DecompressionError, zlib.error, OSError, ValueError) as error:
        raise ProtocolError(f"cannot decompress: {error}") from None
    if written != size:
        # 6.0.5 continues with the following contents of its buffer, which cannot be intended.
        raise ProtocolError(f"{written} bytes decompressed where {size} were announced")
    head = HEADER.pack(HEADER_SIZE_BYTES + size, message.request_id, message.response_to, opcode)
    return Message(head + target, message.request_id, message.response_to, opcode, compressor)


def squeeze(data: bytes, compressor: int) -> bytes:
    """``data`` in compressed form."""
    return _SQUEEZE[compressor](data)


def wrap(raw: bytes, compressor: int) -> bytes:
    """A message in compressed form; unchanged if it is too small to benefit."""
    if len(raw) < _MIN_WORTHWHILE_BYTES:
        return raw
    _, request_id, response_to, opcode = HEADER.unpack_from(raw)
    squeezed = squeeze(raw[HEADER_SIZE_BYTES:], compressor)
    head = HEADER.pack(_BODY_AT + len(squeezed), request_id, response_to, Opcode.COMPRESSED)
    return head + _HEAD.pack(opcode, len(raw) - HEADER_SIZE_BYTES, compressor) + squeezed
