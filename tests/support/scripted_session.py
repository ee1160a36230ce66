"""A client's session whose connection to the backend answers from a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import bson

from catalog.identity import NOBODY, Identity

Reply = Mapping[str, Any] | Exception


class ScriptedUpstream:
    """Keeps what it was asked, decoded, with the session's fields."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.is_closed = False
        self.process = b"one"

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        raw = body if isinstance(body, bytes) else bson.encode(body)
        whole = raw[4:-1] + extra
        self.asked.append((database, bson.decode((len(whole) + 5).to_bytes(4, "little") + whole + b"\0")))
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return bson.encode(reply)


class ScriptedSession:
    """Of nobody, from one client."""

    def __init__(self, *replies: Reply) -> None:
        self.upstream = ScriptedUpstream(*replies)
        self.identity: Identity = NOBODY
        self.owner = "owner"
