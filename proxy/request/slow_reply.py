"""What the slow log says of the end of a command: its outcome, an error code, and the size of the reply."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from catalog.bson.raw import ARRAY, DOUBLE, INT32, INT64, OBJECT, MalformedBSON, iter_positions, unpack_int32
from proxy.request.slow_threshold import Ended
from proxy.wire import op_msg
from proxy.wire.message import Opcode, length_at

MOST_COUNTED: Final = 5_000
"""Documents of a batch that are counted; a longer one has no number."""

_ERRORS: Final = (b"writeErrors", b"writeConcernError")


@dataclass(frozen=True, slots=True)
class ReplySummary:
    """``outcome``: ok, error, write_error, no_reply, closed or disconnected. ``code``: 0 if there is no error.

    ``size_bytes``: of the reply message, not compressed. ``documents``: of the batch, ``None`` if there is none or its
    number is not known. ``waits_for_data``: an empty batch of a cursor that stays open.
    """

    outcome: str
    code: int = 0
    size_bytes: int = 0
    documents: int | None = None
    waits_for_data: bool = False


def reply_of(ended: Ended) -> ReplySummary:
    """The summary of the reply, or of its absence."""
    if ended.disconnected:
        return ReplySummary("disconnected", size_bytes=ended.streamed_bytes)
    if ended.closed:
        return ReplySummary("closed", size_bytes=ended.streamed_bytes)
    document, message = ended.document, ended.message
    try:
        if document is not None:
            return _summary(document, 0, len(document) + op_msg.BODY_AT)
        if message is not None:
            at = op_msg.BODY_AT if length_at(message, 12) == Opcode.MSG else _LEGACY_BODY_AT
            return _summary(message, at, len(message))
    except (MalformedBSON, IndexError, struct.error):
        return ReplySummary("error", size_bytes=len(document or message or b""))
    # Only large replies are streamed, and errors are small.
    return ReplySummary("ok" if ended.streamed_bytes else "no_reply", size_bytes=ended.streamed_bytes)


_LEGACY_BODY_AT: Final = 36


def _summary(raw: bytes, start: int, size_bytes: int) -> ReplySummary:
    is_ok, code, outcome = False, 0, "ok"
    documents: int | None = None
    waits_for_data = False
    for kind_at, name, value, stop in iter_positions(raw, start, start + length_at(raw, start)):
        kind = raw[kind_at]
        if name == b"ok":
            is_ok = any(raw[value:stop])
        elif name == b"code" and kind == INT32:
            code = unpack_int32(raw, value)[0]
        elif name == b"cursor" and kind == OBJECT:
            documents, waits_for_data = _batch(raw, value, stop)
        elif name in _ERRORS:
            outcome, code = "write_error", code or _first_code(raw, kind, value, stop)
    if not is_ok:
        outcome = "error"
    return ReplySummary(outcome, code, size_bytes, documents, waits_for_data)


def _batch(raw: bytes, start: int, end: int) -> tuple[int | None, bool]:
    documents: int | None = None
    is_open = False
    for kind_at, name, value, stop in iter_positions(raw, start, end):
        if name in (b"firstBatch", b"nextBatch") and raw[kind_at] == ARRAY:
            documents = count_of(raw, value, stop)
        elif name == b"id":
            is_open = any(raw[value:stop])
    return documents, is_open and documents == 0


def count_of(raw: bytes, start: int, end: int) -> int | None:
    """The number of elements of an array; ``None`` above ``MOST_COUNTED``. Raises ``MalformedBSON``."""
    count = 0
    for _ in iter_positions(raw, start, end):
        count += 1
        if count > MOST_COUNTED:
            return None
    return count


def _first_code(raw: bytes, kind: int, start: int, end: int) -> int:
    """The first ``code`` in a write error or a list of them."""
    for kind_at, name, value, stop in iter_positions(raw, start, end):
        inner = raw[kind_at]
        if kind == ARRAY and inner == OBJECT:
            return _first_code(raw, OBJECT, value, stop)
        if name == b"code" and inner in (INT32, INT64, DOUBLE):
            return unpack_int32(raw, value)[0] if inner != DOUBLE else 0
    return 0
