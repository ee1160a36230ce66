"""Recognises commands that every server refuses, whatever they are about.

On a time-series collection they are relayed: the server's error is the reply. Otherwise, what is wrong with them could
be lost in the steps that the proxy sends in their place.
"""

from __future__ import annotations

from typing import Final

import bson

from catalog.bson.raw import INT64, unpack_int64
from proxy.request.command import Command
from proxy.request.command_table import WRITES

_MODES: Final = ("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest")
_PLAIN_PREFERENCES: Final = frozenset(bson.encode({"mode": mode}) for mode in _MODES)


def may_be_malformed(command: Command) -> bool:
    """Whether the server decides whether to refuse the command."""
    return (
        command.repeats_fields
        or _has_bad_number(command)
        # They run on the primary, in steps without the client's $readPreference.
        or (command.name in WRITES and _has_other_preference(command))
    )


def _has_bad_number(command: Command) -> bool:
    element = command.fields.get(b"txnNumber")
    if element is None:
        return False
    kind, start, _ = element
    return b"lsid" not in command.fields or (kind == INT64 and int(unpack_int64(command.body, start)[0]) < 0)


def _has_other_preference(command: Command) -> bool:
    """Whether there is a read preference that is more than a mode, or another mode than there are."""
    return b"$readPreference" in command.fields and command.raw(b"$readPreference") not in _PLAIN_PREFERENCES
