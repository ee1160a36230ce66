"""The time-series collection that rows are imported into: its options, and its creation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection

from catalog.namespaces import Granularity
from proxy.settings.redaction import redact_uri
from proxy.tools.files import CODEC

RawCollection = Collection[RawBSONDocument]

ACCESS_DENIED: Final = frozenset({13, 18})
"""Codes of a server that refuses a command, or the login."""


class WrongTarget(Exception):
    """The collection, or what was said about it, cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of ``create``; ``None`` for those that were not given."""

    time_field: str | None = None
    meta_field: str | None = None
    granularity: str | None = None
    expire_after_seconds: int | None = None

    def document(self) -> dict[str, Any]:
        """The fields of ``create``."""
        timeseries = {"timeField": self.time_field, "metaField": self.meta_field, "granularity": self.granularity}
        made: dict[str, Any] = {"timeseries": {name: value for name, value in timeseries.items() if value is not None}}
        if self.expire_after_seconds is not None:
            made["expireAfterSeconds"] = self.expire_after_seconds
        return made


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of the time field and, if there is one, the meta field, in UTF-8."""

    time: bytes
    meta: bytes | None


def split_name(text: str) -> tuple[str, str]:
    """Database and collection of ``DATABASE.COLLECTION``; raises ``WrongTarget``."""
    database, dot, collection = text.partition(".")
    if not database or not dot or not collection:
        raise WrongTarget(f"{text!r} is not DATABASE.COLLECTION")
    return database, collection


def connected(uri: str, connections: int = 4) -> MongoClient[RawBSONDocument]:
    """A client; raises ``WrongTarget`` for a connection string that is not valid. It connects when it is first used."""
    try:
        return MongoClient(
            uri, document_class=RawBSONDocument, maxPoolSize=connections + 2, serverSelectionTimeoutMS=10_000
        )
    except Exception as error:  # noqa: BLE001  (the driver raises many types for what may be wrong)
        raise WrongTarget(f"the connection string is not valid: {redact_uri(str(error))}") from None


def stored_options(collection: RawCollection) -> Mapping[str, Any] | None:
    """The options of a collection and its ``type``, ``None`` if there is none."""
    command = {"listCollections": 1, "filter": {"name": collection.name}}
    reply = collection.database.command(command, codec_options=CODEC)
    for entry in reply["cursor"]["firstBatch"]:
        return {"type": entry["type"], **entry["options"]}
    return None


def prepared(collection: RawCollection, options: TargetOptions, metadata: Path | None = None) -> Fields:
    """Create the collection if there is none; returns its fields.

    ``metadata``: the file that mongodump or ``tsproxy export`` has written beside the rows; used if no options are
    given. Raises ``WrongTarget``, and ``PyMongoError`` if the server refuses.
    """
    name = collection.full_name
    found = stored_options(collection)
    if found is None:
        wanted = options.document()
        if options.time_field is None:
            wanted = _options_in(metadata)
        if "timeField" not in wanted.get("timeseries", {}):
            raise WrongTarget(f"{name} does not exist: name its time field with --time-field")
        collection.database.command({"create": collection.name, **wanted})
        found = stored_options(collection) or {}
    timeseries = found.get("timeseries")
    if timeseries is None:
        raise WrongTarget(f"{name} is not a time-series collection: choose another name")
    for flag, given, stored in (
        ("--time-field", options.time_field, timeseries["timeField"]),
        ("--meta-field", options.meta_field, timeseries.get("metaField")),
        ("--granularity", options.granularity, timeseries.get("granularity")),
    ):
        if given is not None and given != stored:
            raise WrongTarget(f"{name} exists with {stored!r} where {flag} is {given!r}")
    meta = timeseries.get("metaField")
    return Fields(str(timeseries["timeField"]).encode(), None if meta is None else str(meta).encode())


def _options_in(metadata: Path | None) -> dict[str, Any]:
    if metadata is None or not metadata.is_file():
        return {}
    try:
        options = json_util.loads(metadata.read_text())["options"]
        timeseries = options["timeseries"]
        kept = {name: timeseries[name] for name in ("timeField", "metaField", "granularity") if name in timeseries}
        if not isinstance(kept.get("granularity", "seconds"), str) or "granularity" not in kept:
            kept.pop("granularity", None)
        made: dict[str, Any] = {"timeseries": kept}
        if "expireAfterSeconds" in options:
            made["expireAfterSeconds"] = options["expireAfterSeconds"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise WrongTarget(f"{metadata} has no options of a time-series collection ({error!r})") from None
    return made


GRANULARITIES = tuple(each.value for each in Granularity)
