"""OP_COMPRESSED: a compressed message.

The declared size is checked before memory is allocated, and the output cannot exceed it.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

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
_LARGE_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024


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


_Room: TypeAlias = bytearray | memoryview


def _expand_noop(data: memoryview, target: _Room) -> int:
    if len(data) != len(target):
        raise ProtocolError("size of a message with the noop compressor differs from the announced one")
    target[:] = data
    return len(data)


def _expand_snappy(data: memoryview, target: _Room) -> int:
    return int(cramjam.snappy.decompress_raw_into(data, target))


def _expand_zlib(data: memoryview, target: _Room) -> int:
    return int(cramjam.zlib.decompress_into(data, target))


def _expand_zstd(data: memoryview, target: _Room) -> int:
    return int(cramjam.zstd.decompress_into(data, target))


_EXPAND: Final[Mapping[int, Callable[[memoryview, _Room], int]]] = {
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


def unwrap(
    message: Message,
    max_size_bytes: int,
    allowed: Sequence[int] = (1, 2, 3),
    rest: Callable[[], None] = lambda: None,
) -> Message:
    """The contained message; raises ``ProtocolError`` where a server closes the connection.

    ``rest`` is called after each short piece of work on a large message, to let other threads go on.
    """
    raw = message.raw
    if len(raw) < _BODY_AT:
        raise ProtocolError("OP_COMPRESSED is too short")
    opcode, size, compressor = _HEAD.unpack_from(raw, HEADER_SIZE_BYTES)
    if compressor not in allowed:
        raise ProtocolError(f"compressor {compressor} is not supported")
    if opcode == Opcode.COMPRESSED:
        raise ProtocolError("OP_COMPRESSED inside OP_COMPRESSED")
    if size < 0 or size + HEADER_SIZE_BYTES > max_size_bytes:
        raise ProtocolError(f"uncompressed size {size} is not allowed")
    head = HEADER.pack(HEADER_SIZE_BYTES + size, message.request_id, message.response_to, opcode)
    expand = _expand_small if size < _LARGE_BYTES else _expand_large
    whole = expand(head, memoryview(raw)[_BODY_AT:], size, compressor, rest)
    return Message(whole, message.request_id, message.response_to, opcode, compressor)


def _expand_small(head: bytes, data: memoryview, size: int, compressor: int, rest: Callable[[], None]) -> bytes:
    target = bytearray(size)
    _expand(data, target, compressor)
    return head + target


def _expand_large(head: bytes, data: memoryview, size: int, compressor: int, rest: Callable[[], None]) -> bytes:
    """As ``_expand_small``, with the interpreter's lock held only for short times.

    Clearing or copying 48 MB under the lock takes up to 60 ms. The pages of a mapping are cleared when the decompressor
    writes to them, and many ``bytes`` are joined without the lock.
    """
    with mmap.mmap(-1, size) as room, memoryview(room) as target:
        _expand(data, target, compressor)
        pieces = [head]
        for start in range(0, size, _PIECE_BYTES):
            pieces.append(bytes(target[start : start + _PIECE_BYTES]))
            rest()
    return b"".join(pieces)


def _expand(data: memoryview, target: _Room, compressor: int) -> None:
    try:
        written = _EXPAND[compressor](data, target)
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise ProtocolError(f"cannot decompress: {error}") from None
    if written != len(target):
        # 6.0.5 continues with the following contents of its buffer, which cannot be intended.
        raise ProtocolError(f"{written} bytes decompressed where {len(target)} were announced")


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
