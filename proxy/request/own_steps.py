"""What a client hears when a command of the proxy's own account fails.

The backend words its errors for whoever sent the command. That was the proxy: the words may quote the whole command
with measurements of others, name the buckets and the account. So they are passed on only where they can speak of
nothing but the state of the server, or of what this client asked for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import bson

from catalog.bson.codec import TOLERANT
from catalog.bson.raw import fields_of
from catalog.errors import UNAUTHORIZED
from catalog.namespaces import BUCKETS_PREFIX
from proxy.upstream.not_primary import says_ok

OF_THE_SERVER: Final = frozenset({64, 79, 91, 100, 189, 10107, 11600, 11602, 13435, 13436})
"""Write concerns that are not met or not known, and members that step down or shut down."""

OF_OPTIONS: Final = frozenset({2, 9, 14, 72, 40415})
"""Options of the command that are no good, such as a write concern. A text with a document in it is not about these."""

LONGEST_TEXT: Final = 1_000
_MAY_QUOTE: Final = frozenset("{[")


def client_message(code: int, message: str, *, holds_data: bool) -> str:
    """The text for the client; ``holds_data``: the command held more than what this client asked for."""
    if code == UNAUTHORIZED:
        return "tsproxy's account at the backend lacks a privilege that this command needs"
    is_harmless = code in OF_THE_SERVER or (code in OF_OPTIONS and not _MAY_QUOTE.intersection(message))
    if holds_data and not is_harmless:
        return f"a step that tsproxy carries out at the backend failed with error {code}"
    if len(message) > LONGEST_TEXT:
        return f"the backend refused this command with error {code}"
    return message.replace(BUCKETS_PREFIX, "")


def client_reply(reply: bytes, *, holds_data: bool) -> bytes:
    """A raw reply with the texts of its errors as a client may hear them."""
    fields = fields_of(reply)
    if says_ok(fields) and b"writeErrors" not in fields:
        return reply
    said: dict[str, Any] = bson.decode(reply, codec_options=TOLERANT)
    if not said.get("ok"):
        said = {**_told(said, holds_data=holds_data), "ok": 0.0}
    errors = said.get("writeErrors", ())
    if errors:
        said["writeErrors"] = [{"index": each.get("index", 0), **_told(each, holds_data=holds_data)} for each in errors]
    return bson.encode(said, codec_options=TOLERANT)


_KEPT: Final = ("code", "codeName", "errorLabels", "operationTime", "$clusterTime")


def _told(error: Mapping[str, Any], *, holds_data: bool) -> dict[str, Any]:
    """Details beside the text, such as the key of a duplicate, say as much as the text."""
    code = int(error.get("code", 1))
    kept = {name: error[name] for name in _KEPT if name in error}
    return {**kept, "code": code, "errmsg": client_message(code, str(error.get("errmsg", "")), holds_data=holds_data)}
