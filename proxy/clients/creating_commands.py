"""Which commands the rules of ``create_as_timeseries`` are for, and the ``create`` that is sent for them.

A command that the backend refuses for its form creates nothing, so nothing may be created for it either: the proxy
checks here what it can know beforehand. A command with anything else is relayed as without a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, Final

import bson

from catalog.bson.codec import CODEC
from catalog.bson.raw import MalformedBSON, document, element, fields_of, iter_elements
from catalog.errors import CommandError
from proxy.inserts.insert_command import parse_insert
from proxy.request.attempt import stores_result
from proxy.request.command import Command
from proxy.request.command_table import CREATES, CREATES_OTHERS, UPSERTS
from proxy.request.field_types import number_in, plain_write_concern
from proxy.request.session_fields import SESSION_FIELDS
from proxy.settings.collection_rules import CollectionRule
from proxy.wire.framing import ARRAY, STRING

_EXPIRE: Final = b"expireAfterSeconds"
_PLAIN: Final = frozenset(
    {
        *(b"capped", b"collation", b"comment", b"create", b"indexOptionDefaults", b"maxTimeMS", b"readConcern"),
        *(b"storageEngine", b"writeConcern", b"$db", _EXPIRE),
        *SESSION_FIELDS,
    }
)
"""The options of ``create`` that a time-series collection may have, too (C4)."""

_OF_INDEXES: Final = frozenset(
    {
        *(b"createIndexes", b"indexes", b"commitQuorum", b"comment", b"ignoreUnknownIndexOptions", b"maxTimeMS"),
        *(b"writeConcern", b"$db"),
        *SESSION_FIELDS,
    }
)
_OF_ONE_INDEX: Final = frozenset(
    {
        *("2dsphereIndexVersion", "background", "bits", "bucketSize", "collation", "columnstoreProjection"),
        *("default_language", "dropDups", "expireAfterSeconds", "hidden", "key", "language_override", "max", "min"),
        *("name", "ns", "partialFilterExpression", "prepareUnique", "sparse", "storageEngine", "textIndexVersion"),
        *("unique", "v", "weights", "wildcardProjection"),
    }
)
_KINDS: Final = frozenset({"2d", "2dsphere", "columnstore", "hashed", "text"})
_MAJORITY: Final = bytes((STRING,)) + b"\x09\0\0\0majority\0"


def may_create_own(command: Command) -> bool:
    """Whether the command may create the collection that it names."""
    return command.name in CREATES or command.name in UPSERTS


def may_create_others(command: Command) -> bool:
    """Whether the command may create a collection that it names inside."""
    return command.name in CREATES_OTHERS or (command.name == "aggregate" and stores_result(command))


def is_plain_create(command: Command) -> bool:
    """Whether a ``create`` has only options that the rule's may be added to."""
    fields = command.fields
    if fields.keys() - _PLAIN:
        return False
    return b"capped" not in fields or not command.get("capped")


def is_sound(command: Command, *, replicates: bool) -> bool:
    """Whether the backend does not refuse the command for its form, as far as that is known beforehand.

    ``replicates``: the backend is a replica set or a mongos. A ``create`` is always sound: its own is not sent.
    """
    if command.name == "create":
        return True
    if b"writeConcern" in command.fields and not _is_possible(command.raw(b"writeConcern"), replicates=replicates):
        return False
    if command.name == "insert":
        return parse_insert(command, retryable_writes=replicates) is not None
    fields = command.fields
    if fields.keys() - _OF_INDEXES or (b"commitQuorum" in fields and not replicates):
        return False
    try:
        return fields.get(b"indexes", (0,))[0] == ARRAY and _are_indexes(command)
    except CommandError:
        return False


def _is_possible(write_concern: bytes, *, replicates: bool) -> bool:
    if plain_write_concern(write_concern) is None:
        return False
    try:
        w = fields_of(write_concern).get(b"w")
    except MalformedBSON:
        return False
    return replicates or w is None or w == _MAJORITY or number_in(w) in (0, 1)


def _are_indexes(command: Command) -> bool:
    indexes, others_are_ignored = command.get("indexes"), bool(command.get("ignoreUnknownIndexOptions"))
    return bool(indexes) and all(
        isinstance(index, Mapping) and _is_index(index) and (others_are_ignored or index.keys() <= _OF_ONE_INDEX)
        for index in indexes
    )


def _is_index(index: Mapping[str, Any]) -> bool:
    key = index.get("key")
    return (
        isinstance(index.get("name"), str)
        and isinstance(key, Mapping)
        and bool(key)
        and all(kind in _KINDS if isinstance(kind, str) else _is_direction(kind) for kind in key.values())
    )


def _is_direction(kind: object) -> bool:
    return not isinstance(kind, bool) and isinstance(kind, int | float) and not isnan(kind) and kind != 0


def creating(command: Command, rule: CollectionRule) -> bytes:
    """The ``create`` for this command, without session fields: the client's own options stay as they are."""
    given: dict[str, Any] = {"timeseries": dict(rule.timeseries)}
    if command.name != "create":
        elements = [element(b"create", b"\x02" + command.raw(command.name.encode()))]
    else:
        left_out = SESSION_FIELDS | {b"$db"}
        elements = [element(name, value) for name, value in iter_elements(command.body) if name not in left_out]
    if rule.expire_after_seconds is not None and _EXPIRE not in command.fields:
        given[_EXPIRE.decode()] = rule.expire_after_seconds
    return document([*elements, bson.encode(given, codec_options=CODEC)[4:-1]])
