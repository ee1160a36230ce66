"""Measurements through the kernel into a bucket collection, and bucket collections in a comparable form."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from catalog.bson import raw

NATIVE_LIMITS = {"max_count": 1000, "max_size_bytes": 128_000, "min_count": 0}
"""The limits of 6.0.5, which has no exception for large measurements (W45)."""


class KernelCollection:
    """A time-series collection whose buckets one kernel builds, without catalog or proxy.

    Each command is staged as a whole and then written, as a server does with the documents of one ``insert``.
    """

    def __init__(
        self,
        kernel: ModuleType,
        buckets: Collection[Any],
        *,
        time_field: str = "t",
        meta_field: str | None = "m",
        rounding_seconds: int = 60,
        span_seconds: int = 3600,
        limits: dict[str, int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.buckets = buckets
        self.time_field = time_field.encode()
        self.meta_field = meta_field.encode() if meta_field is not None else None
        self.rounding_seconds = rounding_seconds
        self.span_ms = span_seconds * 1000
        self.limits = kernel.Limits(**(NATIVE_LIMITS if limits is None else limits))
        self.open: dict[bytes, Any] = {}
        self.reasons: Counter[int] = Counter()
        self._suffixes = itertools.count(1)

    def insert(self, documents: Iterable[bytes]) -> None:
        """One ``insert`` command of encoded documents."""
        staged: list[tuple[Any, list[Any]]] = []
        for document in documents:
            measurement = self.kernel.parse_measurement(document, self.time_field, self.meta_field)
            state = self._place(measurement)
            for known, measurements in staged:
                if known is state:
                    measurements.append(measurement)
                    break
            else:
                staged.append((state, [measurement]))
        for state, measurements in staged:
            self._write(state, measurements)

    def _place(self, measurement: Any) -> Any:
        state = self.open.get(measurement.meta)
        reason = state.try_stage(measurement) if state is not None else 0
        self.reasons[reason] += 1
        if state is None or reason:
            start_ms = self.kernel.rounded_start_ms(measurement.time_ms, self.rounding_seconds)
            state = self.kernel.BucketState(
                self.kernel.bucket_id(start_ms, next(self._suffixes).to_bytes(8, "big")),
                self.time_field,
                self.meta_field,
                measurement.meta,
                start_ms,
                self.span_ms,
                self.limits,
            )
            self.open[measurement.meta] = state
            assert state.try_stage(measurement) == 0
        return state

    def _write(self, state: Any, measurements: Sequence[Any]) -> None:
        fresh = state.committed_rows == 0
        document = RawBSONDocument(state.prepare(measurements))
        if fresh:
            self._run({"insert": self.buckets.name, "documents": [document]})
        else:
            self._run({"update": self.buckets.name, "updates": [document]})
        state.committed(len(measurements))

    def _run(self, command: dict[str, Any]) -> None:
        reply = self.buckets.database.command(command)
        assert reply["n"] == 1, (reply, command)
        assert "writeErrors" not in reply, reply


def comparable(value: bytes) -> Any:
    """An element value without the order of fields in objects; the bytes of scalars."""
    if value[0] == raw.OBJECT:
        return ("object", tuple(sorted((name, comparable(inner)) for name, inner in raw.iter_elements(value, 1))))
    if value[0] == raw.ARRAY:
        return ("array", tuple(comparable(inner) for _, inner in raw.iter_elements(value, 1)))
    return ("scalar", value)


def bucket_forms(
    database: Database[Any],
    collection: str,
    *,
    time_field: str = "t",
    meta_field: str | None = "m",
    span_seconds: int = 3600,
) -> Counter[Any]:
    """Every bucket as (start by its ``_id``, min, max, meta, rows); rows are a multiset of documents.

    Rows are read by the server itself, so that compressed buckets compare too (W6), and so that a bucket that
    readers cannot walk (W5) shows.
    """
    buckets: Collection[RawBSONDocument] = database["system.buckets." + collection].with_options(
        bson.CodecOptions(document_class=RawBSONDocument)
    )
    unpack: dict[str, Any] = {"timeField": time_field, "bucketMaxSpanSeconds": span_seconds}
    if meta_field is not None:
        unpack["metaField"] = meta_field
    pipeline = [
        {"$addFields": {"bucket": "$$ROOT"}},
        {"$project": {"_id": 1, "bucket._id": 1, "bucket.control": 1, "bucket.meta": 1}},
    ]
    forms: Counter[Any] = Counter()
    for head in buckets.aggregate(pipeline):
        fields = raw.fields_of(raw.fields_of(bytes(head.raw))[b"bucket"], 1)
        control = raw.fields_of(fields[b"control"], 1)
        identity = fields[b"_id"]
        rows = Counter(
            comparable(b"\x03" + bytes(row.raw))
            for row in buckets.aggregate(
                [{"$match": {"_id": bson.ObjectId(identity[1:])}}, {"$_internalUnpackBucket": unpack}]
            )
        )
        meta = comparable(fields[b"meta"]) if b"meta" in fields else None
        summaries = (comparable(control[b"min"]), comparable(control[b"max"]))
        forms[(identity[1:5], *summaries, meta, tuple(sorted(rows.items(), key=repr)))] += 1
    return forms


def stored_rows(database: Database[Any], collection: str) -> Counter[Any]:
    """Uncompressed buckets as (start by ``_id``, control, meta, columns), without the order of columns."""
    buckets = database["system.buckets." + collection].with_options(bson.CodecOptions(document_class=RawBSONDocument))
    forms: Counter[Any] = Counter()
    for bucket in buckets.find({"control.version": 1}):
        fields = raw.fields_of(bytes(bucket.raw))
        data = {name: tuple(raw.iter_elements(column, 1)) for name, column in raw.fields_of(fields[b"data"], 1).items()}
        forms[
            (
                fields[b"_id"][1:5],
                comparable(fields[b"control"]),
                fields.get(b"meta"),
                tuple(sorted((name, tuple((key, comparable(v)) for key, v in rows)) for name, rows in data.items())),
            )
        ] += 1
    return forms


def rows_read(database: Database[Any], collection: str) -> Counter[Any]:
    """The measurements as the server reads them, without the order of fields (Q2)."""
    measurements = database[collection].with_options(bson.CodecOptions(document_class=RawBSONDocument))
    return Counter(comparable(b"\x03" + bytes(row.raw)) for row in measurements.find())
