"""Determines from a reply whether its command has changed something, or may have.

The proxy forgets state of collections and buckets after a change only. If it did so after a refusal, a client without
privileges could prevent the inserts of all others from sharing buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import bson

from catalog.bson.codec import TOLERANT

LEAVES_OPEN: Final = frozenset(
    {
        1, 6, 7, 24, 50, 64, 79, 89, 91, 100, 112, 189, 202, 215, 262, 9001, 10107, 11600, 11601, 11602, 13388, 13435,
        13436,
    }
)  # fmt: skip
"""Errors after which a part may have been done: time limits, interruptions, step-downs, write concerns (a
``dropDatabase`` waits for the members after its collections and before the database)."""


def may_have_changed(reply: bytes) -> bool:
    """Whether the command with this reply document has changed something, or may have."""
    said = bson.decode(reply, codec_options=TOLERANT)
    if not said.get("ok"):
        return said.get("code") in LEAVES_OPEN or bool(said.get("applied")) or "writeConcernError" in said
    counted = said.get("lastErrorObject", said)
    if not isinstance(counted, Mapping) or counted.get("n") != 0:
        return True
    errors = said.get("writeErrors", ())
    return any(isinstance(error, Mapping) and error.get("code") in LEAVES_OPEN for error in errors)
