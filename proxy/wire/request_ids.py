"""Request ids of the messages that this process sends."""

from __future__ import annotations

from itertools import count

_request_ids = count(1)


def next_request_id() -> int:
    """A request id: positive, and unique in this process for a long time."""
    return next(_request_ids) & 0x7FFF_FFFF
