"""What a server makes of metas when it stores them."""

from __future__ import annotations

from typing import Any

import bson
import pymongo

from tests.support.generated_rows import document, element
from tests.support.raw_rows import elements, split

UNDEFINED = element("m", (6, b""))


def stored_metas(database: pymongo.database.Database[Any], sent: list[bytes]) -> dict[bytes, bytes]:
    """How the server itself stores each meta."""
    database.drop_collection("twin")
    database.create_collection("twin", timeseries={"timeField": "t", "metaField": "m"})
    twin = database.twin
    rows = [
        document(element("t", (9, bytes(8))), element("n", (0x10, number.to_bytes(4, "little"))), meta)
        for number, meta in enumerate(sent)
        if meta != UNDEFINED
    ]
    twin.insert_many([bson.raw_bson.RawBSONDocument(each) for each in rows])
    # With undefined as meta a server's own buckets cannot be read any more; the proxy stores null (W35).
    stored = {UNDEFINED: element("m", (0x0A, b""))}
    for chunk in twin.find_raw_batches({}):
        for raw in split(chunk):
            fields = dict(elements(raw))
            stored[sent[int.from_bytes(fields[b"n"][-4:], "little")]] = fields.get(b"m", b"")
    return stored
