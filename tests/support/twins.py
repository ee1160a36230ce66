"""The same commands on a native collection and through the proxy, and replies that can be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bson import Binary, Decimal128, ObjectId
from pymongo import MongoClient

from catalog.bson.codec import CODEC

Reply = dict[str, Any]

IGNORED = frozenset({"$clusterTime", "operationTime", "opTime", "electionId", "lastCommittedOpTime"})
"""What differs between any two replies."""


OBJECT_ID = re.compile(r"ObjectId\('[0-9a-f]{24}'\)")
UUID = re.compile(r'UUID\("[0-9a-f-]{36}"\)')


class Commands:
    """A database by its commands, whose replies keep every date (``DatetimeMS``)."""

    def __init__(self, client: MongoClient[Any], name: str) -> None:
        self.client = client
        self.name = name

    def command(self, command: Mapping[str, Any], **options: Any) -> Reply:
        """The reply; raises ``OperationFailure`` unless ``check=False``."""
        return dict(self.client[self.name].command(dict(command), **{"codec_options": CODEC, **options}))


class Twins:
    """One database on a server, and its twin behind the proxy on the same server."""

    def __init__(self, native: MongoClient[Any], proxied: MongoClient[Any], name: str) -> None:
        self.native = Commands(native, f"{name}_n")
        self.virtual = Commands(proxied, f"{name}_v")
        self.stored = Commands(native, f"{name}_v")

    def both(self, command: Mapping[str, Any]) -> tuple[Reply, Reply]:
        """The two replies to one command, errors too, with their own names in place of the databases'."""
        native, virtual = run(self.native, command), run(self.virtual, command)
        return masked(native, self.native.name), masked(virtual, self.virtual.name)

    def same(self, command: Mapping[str, Any]) -> Reply:
        """The reply, which must be equal to the field and to the type, and in the same order of fields at the top."""
        native, virtual = self.both(command)
        assert exact(virtual) == exact(native), (virtual, native, command)
        assert list(virtual) == list(native), command
        return virtual

    def drop(self) -> None:
        """Leave nothing behind."""
        self.native.client.drop_database(self.native.name)
        self.virtual.client.drop_database(self.virtual.name)


def run(database: Any, command: Mapping[str, Any]) -> Reply:
    """The reply to a command, errors too, of ``Commands`` or a driver's database."""
    return dict(database.command(dict(command), check=False, codec_options=CODEC))


def masked(value: Any, database: str) -> Any:
    """A reply without what differs between any two databases."""
    match value:
        case Mapping():
            return {name: masked(inner, database) for name, inner in value.items() if name not in IGNORED}
        case list():
            return [masked(inner, database) for inner in value]
        case str():
            return UUID.sub("<uuid>", OBJECT_ID.sub("<id>", value.replace(database, "<db>")))
        case ObjectId():
            return "<id>"
        case Binary() if value.subtype == 4:
            return "<uuid>"
        case _:
            return value


def exact(value: Any) -> Any:
    """A form in which an int, a long and a double differ, and so do the two zeros; all NaN are equal."""
    match value:
        case Mapping():
            return {name: exact(inner) for name, inner in value.items()}
        case list():
            return [exact(inner) for inner in value]
        case bool() | int() | float() | Decimal128():
            return (type(value).__name__, str(value))
        case _:
            return value
