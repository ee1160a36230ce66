"""The W3C trace context of a client, which it passes in the ``comment`` of a command.

Two forms are understood: a string that is a ``traceparent``, and a document ``{traceparent: …, tracestate: …}``. The
comment stays in the command, so that it also reaches the backend wherever other comments do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catalog.errors import CommandError
from proxy.request.command import Command

TRACEPARENT_CHARACTERS: Final = 55
"""Length of a ``traceparent`` of version 00: ``00-``, 32 and 16 hexadecimal digits, and two for the flags."""
LONGEST_STATE_CHARACTERS: Final = 512
"""Longer values of ``tracestate`` are ignored, as the specification allows."""
LONGEST_COMMENT_BYTES: Final = 2_048

_LONGEST_SEARCH_BYTES: Final = 64 * 1024
_AS_STRING: Final = b"\x02comment\0" + (TRACEPARENT_CHARACTERS + 1).to_bytes(4, "little")
_AS_DOCUMENT: Final = b"\x02traceparent\0" + (TRACEPARENT_CHARACTERS + 1).to_bytes(4, "little")
_NOTHING: Final[Mapping[str, str]] = {}


def may_carry_trace(raw: bytes, end: int = _LONGEST_SEARCH_BYTES) -> bool:
    """Whether a message, or the body of a command, may carry a trace context before ``end``; without parsing it."""
    return raw.find(_AS_STRING, 0, end) >= 0 or raw.find(_AS_DOCUMENT, 0, end) >= 0


def carried_trace(command: Command) -> Mapping[str, str]:
    """``traceparent``, and ``tracestate`` if there is one; empty if the command has none. Values are not checked."""
    try:
        comment = command.get("comment", LONGEST_COMMENT_BYTES)
    except CommandError:
        return _NOTHING
    if isinstance(comment, str):
        return {"traceparent": comment} if len(comment) == TRACEPARENT_CHARACTERS else _NOTHING
    if not isinstance(comment, Mapping):
        return _NOTHING
    parent, state = comment.get("traceparent"), comment.get("tracestate")
    if not isinstance(parent, str) or len(parent) != TRACEPARENT_CHARACTERS:
        return _NOTHING
    if isinstance(state, str) and len(state) <= LONGEST_STATE_CHARACTERS:
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}
