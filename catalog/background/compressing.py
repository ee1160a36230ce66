"""Compresses closed buckets in the background (W6, W9, W130).

A server compresses a bucket in the insert that closes it; here, no client waits for that. A bucket is compressed when
it is full, or was archived and got no rows for some time, and no write to it is in progress. The replacement applies
only to exactly the document that was read, so any concurrent write takes precedence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from catalog.background.replacing import Forms
from catalog.bson import raw
from catalog.buckets.memory import EndedBucket
from catalog.buckets.open_bucket import CollectionBuckets
from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.ports import Applied, BucketStore, Clock, WriteConcern

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
"""Larger buckets are not compressed, because the guard of the update contains the whole document."""

_NOT_CLOSED = b"\x08\0"

REASONS = ("too_large", "not_smaller", "one_row", "other_form", "changed", "wrong", "unavailable")
"""Why buckets stay uncompressed. ``other_form``: another writer has closed or compressed the bucket, or it is not of
version 1; ``changed``: it was written to meanwhile; ``wrong``: the compressed form was not the same (W130);
``unavailable``: the backend did not respond."""


class CompressingMetrics:
    """Buckets that stay uncompressed, by reason."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = dict.fromkeys(REASONS, 0)

    def leave(self, reason: str, buckets: int = 1) -> None:
        """Count buckets that stay uncompressed."""
        self.left[reason] += buckets


@dataclass(frozen=True, slots=True)
class CompressingOptions:
    """``interval_seconds``: between passes; ``batch_size``: buckets read with one command.

    ``patience_seconds``: timeout of a step. ``inactive_seconds``: an archived bucket without new rows is closed at the
    second check that finds it so; checks are half this time apart.
    """

    interval_seconds: float = 0.25
    batch_size: int = 32
    patience_seconds: float = 10.0
    inactive_seconds: float = 300.0


class Compressing:
    """The background task that compresses buckets."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        forms: Forms,
        options: CompressingOptions | None = None,
    ) -> None:
        self.metrics = CompressingMetrics()
        self._forms = forms
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self.options = options or CompressingOptions()
        self._looked_at_seconds = clock.monotonic_seconds()
        self._archived_rows: dict[bytes, int] = {}
        """The rows of each archived bucket at the last check."""

    def compress_after(self, inactive_seconds: float) -> None:
        """How long buckets must get no rows from now on."""
        self.options = replace(self.options, inactive_seconds=inactive_seconds)

    async def run(self) -> None:
        """Compress closed buckets until the task is cancelled; after an error, it may be run again."""
        while True:
            await asyncio.sleep(self.options.interval_seconds)
            await self._pass()

    async def _pass(self) -> None:
        """Close inactive buckets, if it is time for that, and compress closed ones."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._looked_at_seconds >= self.options.inactive_seconds / 2:
            self._looked_at_seconds = now_seconds
            rows: dict[bytes, int] = {}
            for _ in self._catalog.close_inactive(self._archived_rows, rows):
                await asyncio.sleep(0)
            self._archived_rows = rows
        await self.compress_due()

    async def compress_due(self) -> None:
        """One pass over the buckets that were closed since the last one."""
        waiting = self._catalog.take_full()
        ready: dict[CollectionBuckets, list[bytes]] = {}
        for ended in waiting:
            parts = ended.parts
            if parts is not None and (parts.joining or parts.stored > 1):
                # Its parts are joined first.
                self._catalog.keep_full(ended)
            elif not ended.buckets.replaced and not self._catalog.is_under_way(_stored_id(ended)):
                ready.setdefault(ended.buckets, []).append(_stored_id(ended))
        for buckets, ids in ready.items():
            for start in range(0, len(ids), self.options.batch_size):
                await self._compress(buckets, ids[start : start + self.options.batch_size])

    async def _compress(self, buckets: CollectionBuckets, ids: Sequence[bytes]) -> None:
        deadline_seconds = self._clock.monotonic_seconds() + self.options.patience_seconds
        try:
            stored = await self._store.fetch(buckets.collection, ids, deadline_seconds)
        except CommandError:
            # The buckets stay uncompressed, which every reader can read.
            self.metrics.leave("unavailable", len(ids))
            return
        statements: list[bytes] = []
        sizes: list[tuple[int, int]] = []
        for document in stored.values():
            # In a thread, because a thousand rows take a millisecond.
            try:
                smaller = await asyncio.to_thread(_smaller, self._forms, document, buckets.time_field)
            except Exception as error:  # noqa: BLE001 - it concerns this bucket only
                self._forms.noticed(error)
                smaller = "wrong"
            if isinstance(smaller, str):
                self.metrics.leave(smaller)
                if smaller in _ATTEMPTED:
                    self._count(buckets, len(document), len(document))
            else:
                sizes.append((len(document), len(smaller)))
                statements.append(replacement(document, smaller))
        if not statements:
            return
        outcome = await self._store.update(buckets.collection, statements, WriteConcern(), deadline_seconds)
        if isinstance(outcome, Applied) and outcome.matched == len(statements):
            for before, after in sizes:
                self._count(buckets, before, after)
        else:
            # The reply tells only how many were replaced.
            matched = outcome.matched if isinstance(outcome, Applied) else 0
            reason = "changed" if isinstance(outcome, Applied) else "unavailable"
            self.metrics.leave(reason, len(statements) - matched)

    def _count(self, buckets: CollectionBuckets, before_bytes: int, after_bytes: int) -> None:
        for counters in (buckets.counters, self._catalog.totals):
            counters.compressed(before_bytes, after_bytes)


def _stored_id(ended: EndedBucket) -> bytes:
    return ended.bucket_id if ended.parts is None else ended.parts.last_id


_ATTEMPTED = ("not_smaller", "wrong")
"""The reasons that servers count as attempts, too (W81)."""


def _smaller(forms: Forms, document: bytes, time_field: bytes) -> bytes | str:
    """The compressed form, or one of ``REASONS``.

    :raises Differs: see ``catalog.background.replacing``
    """
    if len(document) > MAX_DOCUMENT_BYTES:
        return "too_large"
    try:
        control: Mapping[bytes, bytes] = raw.fields_of(raw.fields_of(document)[b"control"], 1)
        if control.get(b"closed", _NOT_CLOSED) != _NOT_CLOSED:
            return "other_form"
        smaller = forms.compressed(document, time_field)
        if smaller is not None:
            return smaller
        times = raw.fields_of(raw.fields_of(raw.fields_of(document)[b"data"], 1)[time_field], 1)
    except (KeyError, ValueError):
        return "other_form"
    return "not_smaller" if len(times) > 1 else "one_row"


def replacement(document: bytes, smaller: bytes) -> bytes:
    """An update statement that replaces exactly this document by another form (W130).

    Servers compare by value and with the collection's collation, so a meta value that was changed from 1 to 1.0, or
    from "a" to "A", counts as equal. Therefore only ``control`` and ``data`` are set, and the meta value is kept.
    """
    literal = raw.sub_document(b"1", (raw.element(b"$literal", b"\x03" + document),))
    same = raw.element(b"$eq", b"\x04" + raw.document((raw.element(b"0", raw.string_value(b"$$ROOT")), literal)))
    bucket_id = raw.element(b"_id", raw.fields_of(document)[b"_id"])
    version = raw.element(b"control.version", b"\x10\x01\0\0\0")
    query = raw.document((bucket_id, version, raw.sub_document(b"$expr", (same,))))
    fields = raw.fields_of(smaller)
    new = (raw.sub_document(name, (raw.element(b"$literal", fields[name]),)) for name in (b"control", b"data"))
    stages = raw.document((raw.sub_document(b"0", (raw.sub_document(b"$set", new),)),))
    return raw.document((b"\x03q\0" + query, b"\x04u\0" + stages))
