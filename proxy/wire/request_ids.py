"""Ids of the messages that this process sends."""

from __future__ import annotations

from itertools import count

_request_ids = count(1)


def next_request_id() -> int:
    """A request id for a message of ours, positive, unique for a long while in this process."""
    return next(_request_ids) & 0x7FFF_FFFF
