"""What a process tells others that it has changed, as bytes: a number, a flag and a name."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from catalog.namespaces import Namespace

LONGEST_NAME_BYTES: Final = 1_000
"""No server has names of databases and collections that are longer together."""

_HEAD: Final = struct.Struct("<IB")
"""Number of the change, and ``is_extended_range``."""


class Change(NamedTuple):
    """What has changed: the definition of a collection, or of any collection in a database (with an empty name).

    ``is_extended_range``: instead, the collection gets a time for which bucket ids are not in order (Q12).
    """

    namespace: Namespace
    is_extended_range: bool = False


def change_bytes(number: int, change: Change) -> bytes:
    """A change; with ``number`` 0, no answer is wanted. Raises ``ValueError`` if the name is too long to be one."""
    name = str(change.namespace).encode()
    if len(name) > LONGEST_NAME_BYTES:
        raise ValueError("a name that is too long")
    return _HEAD.pack(number, change.is_extended_range) + name


def change_in(said: bytes) -> tuple[int, Change]:
    """Number and change; raises ``ValueError`` if it is no such message."""
    if not _HEAD.size < len(said) <= _HEAD.size + LONGEST_NAME_BYTES:
        raise ValueError("not a change")
    number, is_extended_range = _HEAD.unpack_from(said)
    database, _, collection = said[_HEAD.size :].decode().partition(".")
    return number, Change(Namespace(database, collection), bool(is_extended_range))
