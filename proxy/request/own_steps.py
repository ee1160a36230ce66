"""The error messages that clients get when a command of the proxy's own account fails.

The backend's message is meant for the sender of the command, which is the proxy: it may quote the whole command with
measurements of other clients, and name the buckets and the account. So it is passed on only if it can be about nothing
but the state of the server, or about what this client has sent.
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

OF_THE_SERVER: Final = frozenset({64, 79, 91, 100, 189, 371, 10107, 11600, 11602, 13435, 13436})
"""Codes of write concerns that are not met or not known, of members that step down or shut down, of blocked writes."""

OF_OPTIONS: Final = frozenset({2, 9, 14, 72, 40415})
"""Codes of invalid options, such as a write concern. If the message quotes a document, the cause is another one."""

OF_VALUES: Final = frozenset({5930501})
"""Codes of values that are not allowed, whose messages name none: an array in a field with an index."""

UNAUTHORIZED_TEXT: Final = (
    "tsproxy's account at the backend lacks a privilege that this command needs, or is not logged in any more"
)
LONGEST_TEXT: Final = 1_000
_MAY_QUOTE: Final = frozenset("{[")


def client_message(code: int, message: str, *, holds_data: bool) -> str:
    """The message for the client; ``holds_data``: the command contains more than what this client has sent."""
    if code == UNAUTHORIZED:
        return UNAUTHORIZED_TEXT
    is_harmless = code in OF_THE_SERVER or (
        (code in OF_OPTIONS or code in OF_VALUES) and not _MAY_QUOTE.intersection(message)
    )
    if holds_data and not is_harmless:
        return f"a step that tsproxy carries out at the backend failed with error {code}"
    if len(message) > LONGEST_TEXT:
        return f"the backend refused this command with error {code}"
    return message.replace(BUCKETS_PREFIX, "")


def client_reply(reply: bytes, *, holds_data: bool) -> bytes:
    """A raw reply with the error messages that the client may get."""
    fields = fields_of(reply)
    if says_ok(fields) and b"writeErrors" not in fields:
        return reply
    said: dict[str, Any] = bson.decode(reply, codec_options=TOLERANT)
    if not said.get("ok"):
        said = {**_error(said, holds_data=holds_data), "ok": 0.0}
    errors = said.get("writeErrors", ())
    if errors:
        said["writeErrors"] = [
            {"index": each.get("index", 0), **_error(each, holds_data=holds_data)} for each in errors
        ]
    return bson.encode(said, codec_options=TOLERANT)


_KEPT: Final = ("code", "codeName", "errorLabels", "operationTime", "$clusterTime")


def _error(error: Mapping[str, Any], *, holds_data: bool) -> dict[str, Any]:
    """An error without the fields that could reveal as much as the message, such as the key of a duplicate."""
    code = int(error.get("code", 1))
    kept = {name: error[name] for name in _KEPT if name in error}
    return {**kept, "code": code, "errmsg": client_message(code, str(error.get("errmsg", "")), holds_data=holds_data)}
