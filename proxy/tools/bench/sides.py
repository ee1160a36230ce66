"""The two sides of the comparison: their databases and collections, what is stored in them, and their removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from proxy.settings.redaction import redact_uri
from proxy.tools.bench.shapes import CHECK_FIELD, Shape
from proxy.tools.bench.tally import Tally
from proxy.tools.bench.workers import Target, connect
from proxy.tools.targets import ACCESS_DENIED

SIDES: Final = ("proxy", "direct")


class WrongSide(Exception):
    """A side cannot be used as it was named; the message says why, and what to do."""


class Unreachable(Exception):
    """A server cannot be reached, or refuses for now; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a side has at the end. ``is_complete``: no acknowledged row is missing, and none is there twice."""

    rows: int
    check: int
    is_complete: bool


class Side:
    """One side. Everything but the name of the collection is the user's."""

    def __init__(self, name: str, uri: str, database: str) -> None:
        """``name``: of ``SIDES``. Raises ``WrongSide`` if ``uri`` is not valid."""
        self.name = name
        self.target = Target(uri, database, f"{name}_{token_hex(4)}")
        if not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise WrongSide(f"--{name}: expected a connection string such as mongodb://db.example:27017/")
        try:
            self._client: MongoClient[dict[str, Any]] = connect(uri)
        except Exception as error:  # noqa: BLE001  (the driver raises many types for what may be wrong)
            raise WrongSide(f"--{name}: the connection string is not valid: {redact_uri(str(error))}") from None
        self._is_made = False
        self._was_there = True

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    @property
    def uri(self) -> str:
        """The connection string without its password."""
        return redact_uri(self.target.uri)

    def check(self, *, may_exist: bool) -> None:
        """Look whether the side can be used, and change nothing.

        Raises ``WrongSide`` if the database exists and may not, or the side does not tell what it stores, and
        ``Unreachable``.
        """
        if not self._client.write_concern.acknowledged:
            raise WrongSide(
                f"--{self.name}: the bench needs acknowledged writes: remove w=0 from the connection string"
            )
        try:
            found = self._own_collections()
        except PyMongoError as error:
            raise self._told(error, "list the collections of") from None
        self._was_there = bool(found)
        if found and not may_exist:
            raise WrongSide(
                f"--{self.name}: the database {self.target.database} exists: choose another with --database, or allow "
                "the bench to add a collection with --into-existing"
            )

    def make(self, shape: Shape) -> None:
        """Create the collection; raises ``WrongSide`` and ``Unreachable``."""
        timeseries = {"timeField": shape.time_field}
        if shape.meta_field is not None:
            timeseries["metaField"] = shape.meta_field
        self._is_made = True
        try:
            self._client[self.target.database].command({"create": self.target.collection, "timeseries": timeseries})
        except PyMongoError as error:
            # Without the server's reply, the collection may be there.
            self._is_made = not isinstance(error, OperationFailure)
            raise self._told(error, "create a time-series collection in") from None

    def stored(self, expected: Tally) -> Stored:
        """Count and add up what is stored. ``expected`` has all that was acknowledged; raises ``Unreachable``."""
        group = {"_id": None, "rows": {"$sum": 1}, "check": {"$sum": f"${CHECK_FIELD}"}}
        collection = self._client[self.target.database][self.target.collection]
        try:
            found: Sequence[Mapping[str, Any]] = list(collection.aggregate([{"$group": group}], allowDiskUse=True))
        except PyMongoError as error:
            raise self._told(error, "read") from None
        rows, check = (int(found[0]["rows"]), int(found[0]["check"])) if found else (0, 0)
        if expected.unknown_rows:
            # It is not known which of these are stored, so their values cannot be compared.
            return Stored(rows, check, expected.rows <= rows <= expected.rows + expected.unknown_rows)
        return Stored(rows, check, (rows, check) == (expected.rows, expected.check))

    def remove(self) -> str:
        """Drop what ``make`` has made; returns what could not be dropped, ``""`` if nothing is left."""
        if not self._is_made:
            return ""
        database = self._client[self.target.database]
        try:
            database.drop_collection(self.target.collection)
            if not self._was_there and not self._own_collections():
                # Only the list of views is left of it, which matters to nobody.
                self._drop_database()
        except PyMongoError as error:
            name = f"{self.target.database}.{self.target.collection}"
            return f"--{self.name}: could not drop {name} ({redact_uri(str(error))[:200]}): drop it yourself"
        self._is_made = False
        return ""

    def _drop_database(self) -> None:
        """Drop the database, unless the user may not."""
        try:
            self._client.drop_database(self.target.database)
        except OperationFailure as error:
            if error.code not in ACCESS_DENIED:
                raise

    def _own_collections(self) -> list[str]:
        names = self._client[self.target.database].list_collection_names()
        return [name for name in names if not name.startswith("system.")]

    def _told(self, error: PyMongoError, act: str) -> WrongSide | Unreachable:
        text = redact_uri(str(error))[:300]
        if isinstance(error, OperationFailure) and error.code in ACCESS_DENIED:
            return WrongSide(
                f"--{self.name}: access denied: the user of the connection string may not {act} "
                f"{self.target.database}; grant readWrite on it ({text})"
            )
        if isinstance(error, ConnectionFailure):
            return Unreachable(f"--{self.name}: cannot reach the server: {text}")
        return Unreachable(f"--{self.name}: cannot {act} {self.target.database}: {text}")
