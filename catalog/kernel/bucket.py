"""The state of one open bucket: its contents, whether a measurement fits, and the documents that store it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from catalog.bson import raw
from catalog.bson.order import CANONICAL
from catalog.bson.paths import is_path_safe
from catalog.errors import InvariantViolated
from catalog.kernel import documents
from catalog.kernel.measurement import Measurement
from catalog.kernel.minmax import BOTH_CHANGED, MAX_CHANGED, MIN_CHANGED, Summary, summary_between, summary_of
from catalog.kernel.reopen_validation import reopened_bucket
from catalog.kernel.rollover import Limits, RolloverReason
from catalog.kernel.schema import ValueShape, compatible, grow, nodes_of, shape_of

_DOCUMENT_MAX_BYTES = raw.MAX_DOCUMENT_BYTES - 512 * 1024
"""Maximum size of values, summaries and meta value; the rest is for paths, row keys and the guard."""
_PATHS_MAX_BYTES = 4 * 1024 * 1024
"""An update with more bytes of dotted paths is sent as a pipeline, which names each column once."""
_PIPELINE_MIN_ROWS = 8
_PIPELINE_SHARE = 16
"""An update of this many rows, plus one for each ``_PIPELINE_SHARE`` stored rows, is also sent as a pipeline (W123).

A server looks for each dotted path from the column's start, while a pipeline rewrites the document once. Dotted
paths relative to pipeline, in processor time of 6.0.5 for a bucket of ten fields: 5 rows and 4 more 0.7;
30 and 8 more 0.9; 100 and 16 more 0.8; 500 and 32 more 1.1; 10 and 200 more 4; 500 and 200 more 5.
"""
_PIPELINE_MIN_COLUMNS = 1000
"""An update of this many columns is also sent as a pipeline.

A server looks for the column of each dotted path from the first one, which takes quadratic time: one more row of 700
fields takes 6.0.5 as long either way, one of 2,000 fields 1.7 times, and one of 20,000 fields 13 times.
"""
_BUCKET_MEMORY_BYTES = 1200
_COLUMN_MEMORY_BYTES = 640
_NODE_MEMORY_BYTES = 520
"""Memory of each value inside a nested one: its place in the shape, two summaries, their names."""


class _Column:
    """One field of a bucket: its shape, its summary and the paths that address it."""

    __slots__ = (
        "committed",
        "greatest",
        "kind",
        "least",
        "max_path",
        "min_path",
        "name",
        "row_path",
        "safe",
        "shape",
        "summary",
    )

    def __init__(self, name: bytes, kind: int, shape: ValueShape | None) -> None:
        self.name = name
        self.kind = kind
        self.shape = shape
        self.committed = False
        self.summary: Summary | None = None
        self.least = b""
        self.greatest = b""
        self.safe = is_path_safe(name)
        self.row_path = b"data." + name + b"."
        self.min_path = b"control.min." + name + b"\0"
        self.max_path = b"control.max." + name + b"\0"

    def fold(self, value: bytes) -> int:
        """Adds a value to the summary; returns which ends changed."""
        if self.summary is None:
            self.summary = summary_of(value)
            return BOTH_CHANGED
        return self.summary.fold(value)

    def encode_ends(self) -> int:
        """Encodes the summary again; returns by how many bytes it grew."""
        before = len(self.least) + len(self.greatest)
        if self.summary is not None:
            self.least, self.greatest = self.summary.ends()
        return len(self.least) + len(self.greatest) - before


class _Bytes:
    """``unfolded``: values not yet in the summaries; ``summaries``: encoded ends; ``memory``: an estimate.

    ``cap``: the smaller size limit, or 0.
    """

    __slots__ = ("cap", "memory", "summaries", "unfolded")

    def __init__(self) -> None:
        self.cap = 0
        self.unfolded = 0
        self.summaries = 0
        self.memory = _BUCKET_MEMORY_BYTES


class BucketState:
    """One open bucket. Rows are *staged* when clients send them, and *committed* when the backend has them.

    ``rows`` and ``size_bytes`` (W46) count staged and committed rows, so that limits hold for batches in progress.
    ``span_ms`` may be set: a coarser granularity applies to open buckets at once (W49).
    ``kept_open_for_large`` says that large measurements kept it open beyond its size limit (W45).
    A bucket whose write failed must be dropped, because its summaries include rows that are not stored.
    """

    __slots__ = (
        "_bytes",
        "_columns",
        "_guard",
        "_limits",
        "bucket_id",
        "committed_rows",
        "kept_open_for_large",
        "meta",
        "rows",
        "size_bytes",
        "span_ms",
        "start_ms",
    )

    def __init__(
        self,
        bucket_id: bytes,
        time_field: bytes,
        meta_field: bytes | None,
        meta: bytes,
        start_ms: int,
        span_ms: int,
        limits: Limits,
    ) -> None:
        if meta and meta_field is None:
            raise InvariantViolated("a meta value in a collection without meta field")
        if len(bucket_id) != 12:
            raise ValueError("a bucket id has twelve bytes")
        self.bucket_id = bucket_id
        self.meta = meta
        self.start_ms = start_ms
        self.rows = 0
        self.committed_rows = 0
        self.size_bytes = 0
        self.kept_open_for_large = False
        self.span_ms = span_ms
        self._limits = limits
        self._guard = documents.Guard(bucket_id, time_field, meta)
        self._bytes = _Bytes()
        self._columns: dict[bytes, _Column] = {}
        # The summary of the time field starts from the rounded time (W20).
        start = b"\x09" + raw.pack_int64(start_ms)
        time = self._add_column(time_field, start)
        time.fold(start)
        self._bytes.summaries += time.encode_ends()
        self._bytes.memory += 3 * len(meta)

    def _add_column(self, name: bytes, value: bytes) -> _Column:
        nested = value[0] in raw.NESTED_TYPES
        column = _Column(name, CANONICAL[value[0]], shape_of(value) if nested else None)
        self._columns[name] = column
        self._bytes.memory += _COLUMN_MEMORY_BYTES + 5 * len(name)
        if column.shape is not None:
            self._bytes.memory += _NODE_MEMORY_BYTES * nodes_of(column.shape)
        return column

    @classmethod
    def from_document(
        cls, document: bytes, time_field: bytes, meta_field: bytes | None, span_ms: int, limits: Limits
    ) -> BucketState:
        """The state of a stored bucket, so that it can accept further rows (W50). Its size is that of the document.

        :raises ValueError: the document is not a valid bucket to append to; see ``catalog.kernel.reopen_validation``
        """
        bucket_id, meta, start_ms, rows, ends = reopened_bucket(document, time_field, meta_field, span_ms)
        state = cls(bucket_id, time_field, meta_field, meta, start_ms, span_ms, limits)
        for name, (least, greatest) in ends.items():
            column = state._columns.get(name) or state._add_column(name, least)
            if column.shape is not None:
                state._bytes.memory += _NODE_MEMORY_BYTES * grow(column.shape, greatest)
            column.summary = summary_between(least, greatest)
            column.committed = True
            state._bytes.summaries += column.encode_ends()
        state.rows = state.committed_rows = rows
        state.size_bytes = len(document)
        return state

    def try_stage(self, measurement: Measurement) -> int:
        """Stages a measurement, unless the bucket should be closed for it.

        :returns: 0 when it was staged, else the ``RolloverReason``; the bucket is unchanged then (W40)
        """
        columns = self._columns
        added_bytes = measurement.payload_bytes
        for name, value in measurement.columns.items():
            column = columns.get(name)
            if column is None:
                added_bytes += 12 + len(name)
                continue
            if column.kind != CANONICAL[value[0]] or (column.shape is not None and not compatible(column.shape, value)):
                return RolloverReason.SCHEMA_CHANGE
            if not column.committed:
                added_bytes += 12 + len(name)
        rows = self.rows
        # Row 0 counts as having no digits (W46).
        added_bytes += len(measurement.columns) * (len(str(rows)) + 1 if rows else 1)
        limits = self._limits
        if rows >= limits.max_count:
            return RolloverReason.COUNT
        if self._bytes.cap and rows and self.size_bytes + added_bytes > self._bytes.cap:
            return RolloverReason.CACHE_PRESSURE
        if rows and self.size_bytes + added_bytes > limits.max_size_bytes and not self._stays_open(added_bytes):
            return RolloverReason.SIZE
        offset_ms = measurement.time_ms - self.start_ms
        if offset_ms >= self.span_ms:
            return RolloverReason.TIME_FORWARD
        if offset_ms < 0:
            return RolloverReason.TIME_BACKWARD
        if rows and self.size_bytes + added_bytes > limits.max_size_bytes:
            self.kept_open_for_large = True
        for name, value in measurement.columns.items():
            column = columns.get(name)
            if column is None:
                self._add_column(name, value)
            elif column.shape is not None:
                self._bytes.memory += _NODE_MEMORY_BYTES * grow(column.shape, value)
        self.rows = rows + 1
        self.size_bytes += added_bytes
        self._bytes.unfolded += measurement.payload_bytes
        return 0

    def _stays_open(self, added_bytes: int) -> bool:
        """Whether large measurements keep the bucket open beyond its size limit (W45)."""
        size_bytes = self.size_bytes + added_bytes
        if self.rows >= self._limits.min_count or size_bytes > self._limits.large_max_bytes:
            return False
        summaries = self._bytes.summaries + 2 * (self._bytes.unfolded + added_bytes)
        return size_bytes + summaries + len(self.meta) <= _DOCUMENT_MAX_BYTES

    def prepare(self, measurements: Sequence[Measurement]) -> bytes:
        """Numbers staged measurements from ``committed_rows`` on and folds them into the summaries (W64).

        One batch of a bucket is prepared at a time. The order of ``measurements`` is that of the rows.

        A field with the empty name has no summary in a bucket without a meta value, as on 6.0.5 (W27).

        :returns: the encoded bucket document if nothing is committed yet, otherwise the encoded update statement
        """
        base = self.committed_rows
        changes = self._fold(measurements)
        if base == 0:
            return self._bucket_document(measurements)
        return self._update_statement(base, measurements, changes)

    def fold(self, measurements: Sequence[Measurement]) -> None:
        """As ``prepare``, for measurements that are written as a part (``catalog.parts``)."""
        self._fold(measurements)

    def _fold(self, measurements: Sequence[Measurement]) -> dict[bytes, int]:
        """Adds the measurements to the summaries; returns which ends changed, by column."""
        if not measurements or self.committed_rows + len(measurements) > self.rows:
            raise InvariantViolated("prepared measurements that were not staged")
        columns = self._columns
        changes: dict[bytes, int] = {}
        for measurement in measurements:
            for name, value in measurement.columns.items():
                column = columns[name]
                column.committed = True
                summary = column.summary
                changed = column.fold(value) if summary is None else summary.fold(value)
                if changed and (name or self.meta):
                    changes[name] = changes.get(name, 0) | changed
            self._bytes.unfolded -= measurement.payload_bytes
        for name in changes:
            grown = columns[name].encode_ends()
            self._bytes.summaries += grown
            self._bytes.memory += 2 * grown
        return changes

    def _rows_by_column(self, base: int, measurements: Sequence[Measurement]) -> dict[bytes, list[bytes]]:
        """Encoded rows by column, in the order of the bucket's columns."""
        rows: dict[bytes, list[bytes]] = {}
        for row, measurement in enumerate(measurements, base):
            key = b"%d\0" % row
            for name, value in measurement.columns.items():
                encoded = value[:1] + key + value[1:]
                if name in rows:
                    rows[name].append(encoded)
                else:
                    rows[name] = [encoded]
        return {name: rows[name] for name in self._columns if name in rows}

    def _bucket_document(self, measurements: Sequence[Measurement]) -> bytes:
        rows = self._rows_by_column(0, measurements)
        columns = self._columns
        ends = [(name, columns[name].least, columns[name].greatest) for name in rows if name or self.meta]
        return documents.bucket_document(self.bucket_id, self.meta, ends, rows.items())

    def _update_statement(self, base: int, measurements: Sequence[Measurement], changes: Mapping[bytes, int]) -> bytes:
        columns = self._columns
        query = self._guard.query(base)
        touched = [columns[name] for name in set().union(*(measurement.columns for measurement in measurements))]
        paths_bytes = len(measurements) * (sum([len(column.name) for column in touched]) + 12 * len(touched))
        many_rows = len(measurements) >= _PIPELINE_MIN_ROWS + base // _PIPELINE_SHARE
        many = many_rows or len(touched) >= _PIPELINE_MIN_COLUMNS
        if many or paths_bytes > _PATHS_MAX_BYTES or not all(column.safe for column in touched):
            least = [raw.element(name, columns[name].least) for name, ends in changes.items() if ends & MIN_CHANGED]
            greatest = [
                raw.element(name, columns[name].greatest) for name, ends in changes.items() if ends & MAX_CHANGED
            ]
            rows = self._rows_by_column(base, measurements)
            return documents.pipeline_statement(query, rows.items(), least, greatest)
        sets: list[bytes] = []
        for row, measurement in enumerate(measurements, base):
            key = b"%d\0" % row
            sets += [
                value[:1] + columns[name].row_path + key + value[1:] for name, value in measurement.columns.items()
            ]
        for name, ends in changes.items():
            column = columns[name]
            if ends & MIN_CHANGED:
                sets.append(column.least[:1] + column.min_path + column.least[1:])
            if ends & MAX_CHANGED:
                sets.append(column.greatest[:1] + column.max_path + column.greatest[1:])
        return documents.set_statement(query, sets)

    def committed(self, count: int) -> None:
        """The backend has stored the ``count`` rows that were prepared last."""
        if count < 0 or self.committed_rows + count > self.rows:
            raise InvariantViolated("more rows committed than staged")
        self.committed_rows += count

    @property
    def cap_bytes(self) -> int:
        """A smaller size limit while the server's cache is short; 0 for none (W51)."""
        return self._bytes.cap

    @cap_bytes.setter
    def cap_bytes(self, cap_bytes: int) -> None:
        """The measurements that are staged already stay."""
        self._bytes.cap = cap_bytes

    @property
    def columns(self) -> int:
        """The number of columns, that of the time field included."""
        return len(self._columns)

    def memory_bytes(self) -> int:
        """The approximate memory of this object."""
        return self._bytes.memory
