"""A regular collection as a source, in the order of its ``_id`` index, so that an import can go on in the middle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import bson
from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from catalog.bson.raw import fields_of
from proxy.tools.files import CODEC, READING
from proxy.tools.rows import AnyRow, Broken, Mark, Row

BATCH_ROWS: Final = 10_000
_INDEX: Final = "_id_"


class CollectionSource:
    """The documents of a collection."""

    unit = "document"

    def __init__(self, collection: Collection[RawBSONDocument]) -> None:
        """Raises ``Broken`` if it is not a regular collection, and ``PyMongoError`` if the server does not respond."""
        self._collection = collection
        listed = collection.database.list_collections(filter={"name": collection.name})
        kinds = [str(entry["type"]) for entry in listed]
        if kinds != ["collection"]:
            found = f"is a {kinds[0]}" if kinds else "does not exist"
            raise Broken(f"{collection.full_name} {found}: expected a regular collection")
        self.total = collection.estimated_document_count()

    def fingerprint(self) -> Mapping[str, Any]:
        return {"collection": self._collection.full_name}

    def rows(self, mark: Mark) -> Iterator[AnyRow]:
        cursor = self._collection.find(batch_size=BATCH_ROWS).hint(_INDEX)
        last = b""
        if mark:
            value = json_util.loads(mark["_id"], json_options=READING)["v"]
            # A comparison with $gt would leave out values of other types.
            cursor = cursor.min([("_id", value)])
            last = fields_of(bson.encode({"_id": value}, codec_options=CODEC))[b"_id"]
        where = int(mark.get("where", 0))
        for each in cursor:
            raw = bytes(each.raw)
            if last and fields_of(raw)[b"_id"] == last:
                last = b""
                continue
            where += 1
            yield Row(raw, where, where)

    def mark_after(self, entry: AnyRow) -> Mark:
        assert isinstance(entry, Row)
        value = bson.decode(entry.document, codec_options=CODEC)["_id"]
        text = json_util.dumps({"v": value}, json_options=json_util.CANONICAL_JSON_OPTIONS)
        return {"_id": text, "where": entry.where}
