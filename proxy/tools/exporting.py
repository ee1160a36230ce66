"""``tsproxy export``: the measurements of a time-series collection as a file of mongodump (BSON) or mongoexport (JSON).

The file gets its name when it is complete. The options of the collection are written beside it, as mongodump does, so
that ``tsproxy import`` creates the same collection.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, cast

import bson
from bson import json_util

from catalog.namespaces import BUCKETS_PREFIX
from proxy.tools.files import CODEC
from proxy.tools.targets import RawCollection, WrongTarget, stored_options

BATCH_ROWS: Final = 10_000
COMPRESSION_LEVEL: Final = 5

BUCKETS_FILE: Final = BUCKETS_PREFIX
"""mongodump writes the buckets of a time-series collection to a file whose name begins so."""
LEAVING: Final = (
    "Nothing has to be exported to go back to a server without the proxy: {name} is one of MongoDB's own time-series\n"
    "collections. Point the applications at MongoDB itself, and stop the proxy when they are connected there."
)


def run(
    collection: RawCollection,
    path: Path,
    *,
    form: str,
    query: dict[str, Any] | None = None,
    relaxed: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write all measurements that match ``query``; returns their number.

    ``form`` is ``bson`` or ``json``; a name that ends in ``.gz`` is compressed. ``relaxed``: JSON that people read
    easily but that does not tell all types. Raises ``WrongTarget``, ``OSError`` and ``PyMongoError``.
    """
    options = stored_options(collection)
    if options is None or "timeseries" not in options:
        found = "does not exist" if options is None else "is not a time-series collection"
        raise WrongTarget(f"{collection.full_name} {found}")
    beside = path.with_name(path.name + ".part")
    rows = 0
    with ExitStack() as stack:
        file = stack.enter_context(beside.open("wb"))
        out: IO[bytes] = file
        if path.suffix == ".gz":
            out = stack.enter_context(cast("IO[bytes]", gzip.GzipFile("", "wb", COMPRESSION_LEVEL, file, mtime=0)))
        for each in collection.find_raw_batches(query or {}, batch_size=BATCH_ROWS):
            batch = cast("bytes", each)
            documents = list(_documents(batch))
            out.write(batch if form == "bson" else b"".join(_line(row, relaxed=relaxed) for row in documents))
            rows += len(documents)
            progress(rows)
        if out is not file:
            out.close()
        file.flush()
        os.fsync(file.fileno())
    metadata_path(path).write_text(_metadata(collection, options))
    beside.replace(path)
    return rows


def metadata_path(path: Path) -> Path:
    """The name of the file with the options of a collection, beside the one with its rows."""
    name = path.name.removesuffix(".gz")
    return path.with_name(name.rpartition(".")[0] + ".metadata.json" if "." in name else name + ".metadata.json")


def _documents(batch: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(batch):
        end = position + int.from_bytes(batch[position : position + 4], "little")
        yield batch[position:end]
        position = end


def _line(document: bytes, *, relaxed: bool) -> bytes:
    form = json_util.RELAXED_JSON_OPTIONS if relaxed else json_util.CANONICAL_JSON_OPTIONS
    return json_util.dumps(bson.decode(document, codec_options=CODEC), json_options=form).encode() + b"\n"


def _metadata(collection: RawCollection, options: Any) -> str:
    kept = {name: value for name, value in options.items() if name != "type"}
    whole = {"options": kept, "collectionName": collection.name, "type": "timeseries"}
    return json_util.dumps(whole, json_options=json_util.CANONICAL_JSON_OPTIONS) + "\n"
