"""What a reply says of its command: whether something was changed, or may have been.

What is known of collections and buckets is let go after a change only. Were it let go after a refusal, whoever is
allowed nothing could keep everybody's inserts from sharing buckets.
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
"""Errors that come after a part was done, or may: time limits, interruptions, step-downs, write concerns (a
``dropDatabase`` waits for the members between its collections and itself)."""


def may_have_changed(reply: bytes) -> bool:
    """Whether the command with this reply document changed something, or leaves that open."""
    said = bson.decode(reply, codec_options=TOLERANT)
    if not said.get("ok"):
        return said.get("code") in LEAVES_OPEN or bool(said.get("applied")) or "writeConcernError" in said
    counted = said.get("lastErrorObject", said)
    if not isinstance(counted, Mapping) or counted.get("n") != 0:
        return True
    errors = said.get("writeErrors", ())
    return any(isinstance(error, Mapping) and error.get("code") in LEAVES_OPEN for error in errors)
