"""Deletes any measurements from their buckets, without losing rows that are appended concurrently (U8).

A bucket is changed only if it is exactly what was read. If a guard does not match, another writer has changed the
bucket, and it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import Int64, ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.bson.raw import fields_of
from catalog.errors import WRITE_CONFLICT, CommandError
from catalog.kernel.merging import closed
from catalog.queries import NO_DOCUMENT
from rewrite import bucket_reads
from rewrite.bucket_reads import TAG, Selection
from rewrite.bucket_writes import Removal, Talk, checked, unchanged
from rewrite.plan import ClearBuckets, Document, Step, Via
from rewrite.repacking import columns_of, repacked, survivors
from rewrite.stages.draft import Stage

PAGE = 25
"""Number of buckets that are processed together."""

ROWS_AT_ONCE = 10_000
"""Number of matches that are searched for together."""

ATTEMPTS = 64
"""How often a bucket that other writers change is read again."""


def changed_repeatedly() -> CommandError:
    """The error after ``ATTEMPTS`` to remove a measurement."""
    return CommandError(WRITE_CONFLICT, "the measurement's bucket was changed repeatedly by other writers; retry")


def read(selection: Selection, body: Document, *, raw: bool = False, holds_data: bool = False) -> Talk[list[Any]]:
    """All results of a reading command, over all its batches; ``holds_data``: see ``Step``."""
    database = selection.target.buckets.database
    documents: list[Any] = []
    reply = checked((yield Step(database, body, Via.SERVICE, raw=raw, holds_data=holds_data)))
    documents += reply["cursor"]["firstBatch"]
    while reply["cursor"]["id"]:
        more = {"getMore": Int64(reply["cursor"]["id"]), "collection": selection.target.buckets.collection}
        reply = checked((yield Step(database, more, Via.SERVICE, raw=raw, holds_data=holds_data)))
        documents += reply["cursor"]["nextBatch"]
    return documents


def remove_all(removal: Removal, selection: Selection) -> Talk[int]:
    """Remove every match; returns their number."""
    if bucket_reads.may_cover(selection) or selection.sees_whole_rows:
        return (yield from _remove_from_candidates(removal, selection))
    return (yield from _remove_where_found(removal, selection))


def _remove_where_found(removal: Removal, selection: Selection) -> Talk[int]:
    """The summaries of a bucket say little of single measurements: so the server looks into all that may match."""
    removed = 0
    while True:
        holding = yield from read(selection, bucket_reads.holding_matches(selection, ROWS_AT_ONCE))
        ids = [bucket["_id"] for bucket in holding]
        removed_before = removed
        for first in range(0, len(ids), PAGE):
            removed += yield from _remove_from(removal, selection, ids[first : first + PAGE])
        # Others may have removed what was found.
        if sum(bucket["rows"] for bucket in holding) < ROWS_AT_ONCE or removed == removed_before:
            return removed


def _remove_from_candidates(removal: Removal, selection: Selection) -> Talk[int]:
    """Whole buckets go at once."""
    removed = 0
    after: ObjectId | None = None
    while True:
        page = yield from read(selection, bucket_reads.candidates(selection, after, PAGE))
        if not page and after is None:
            # No bucket can match, but a server first validates the predicate.
            yield from read(selection, bucket_reads.tagged_matches(selection, NO_DOCUMENT))
        if not page:
            return removed
        after = page[-1]["_id"]
        covered = [bucket for bucket in page if bucket_reads.covers(selection, bucket)]
        gone, kept = yield from _delete_covered(removal, selection, covered)
        removed += gone
        left = [bucket["_id"] for bucket in page if bucket not in covered] + kept
        removed += yield from _remove_from(removal, selection, left)


def _delete_covered(
    removal: Removal, selection: Selection, covered: Sequence[Mapping[str, Any]]
) -> Talk[tuple[int, list[ObjectId]]]:
    """Delete buckets whose measurements all match; returns the number of measurements, and the remaining buckets."""
    if not covered:
        return 0, []
    ids = [bucket["_id"] for bucket in covered]
    yield _clear(selection, ids)
    guards = [bucket_reads.unchanged_cover(selection, bucket) for bucket in covered]
    deleted = yield from removal.delete(selection, guards)
    yield _clear(selection, ids)
    kept: list[ObjectId] = []
    if deleted < len(covered):
        stored = yield from read(selection, {**bucket_reads.documents(selection, ids)}, raw=True)
        kept = [ObjectId(fields_of(bytes(bucket.raw))[b"_id"][1:]) for bucket in stored]
    return sum(bucket["rows"] for bucket in covered if bucket["_id"] not in kept), kept


def _remove_from(removal: Removal, selection: Selection, ids: Sequence[ObjectId]) -> Talk[int]:
    """Remove the matches in these buckets; returns their number."""
    removed = 0
    pending = list(ids)
    for _ in range(ATTEMPTS):
        if not pending:
            return removed
        found = yield from _matching_rows(selection, pending)
        pending = []
        if not found:
            return removed
        yield _clear(selection, list(found))
        buckets, rows = yield from _stored(selection, list(found))
        for bucket_id, matching in found.items():
            change = _Change(bucket_id, buckets.get(bucket_id), rows.get(bucket_id, []), matching)
            if (yield from _apply(removal, selection, change)):
                removed += len(matching)
            else:
                pending.append(bucket_id)
        yield _clear(selection, list(found))
    raise CommandError(WRITE_CONFLICT, "buckets were changed repeatedly by other writers; retry")


def _clear(selection: Selection, ids: Sequence[ObjectId]) -> ClearBuckets:
    return ClearBuckets(selection.target.namespace, tuple(bucket.binary for bucket in ids))


Rows = dict[ObjectId, list[bytes]]


def _matching_rows(selection: Selection, ids: Sequence[ObjectId]) -> Talk[Rows]:
    """The matching rows of each of these buckets that has any, without the meta field."""
    meta = _meta_name(selection)
    if not selection.sees_whole_rows:
        body = bucket_reads.tagged_matches(selection, {"_id": {"$in": list(ids)}})
        return _by_bucket((yield from read(selection, body, raw=True)), meta)
    found: Rows = {}
    for bucket_id in ids:
        rows = yield from read(selection, bucket_reads.matches(selection, bucket_id), raw=True)
        if rows:
            found[bucket_id] = [columns_of(bytes(row.raw), meta) for row in rows]
    return found


def _meta_name(selection: Selection) -> tuple[bytes, ...]:
    meta = selection.target.options.meta_field
    return () if meta is None else (meta.encode(),)


def _by_bucket(rows: Sequence[RawBSONDocument], left_out: tuple[bytes, ...]) -> Rows:
    found: Rows = {}
    for row in rows:
        found.setdefault(_tagged_id(bytes(row.raw)), []).append(columns_of(bytes(row.raw), (TAG.encode(), *left_out)))
    return found


def _tagged_id(row: bytes) -> ObjectId:
    return ObjectId(fields_of(fields_of(row)[TAG.encode()], 1)[b"id"][1:])


def _stored(selection: Selection, ids: Sequence[ObjectId]) -> Talk[tuple[dict[ObjectId, bytes], Rows]]:
    """These buckets as they are stored, and then their rows; a bucket that changes in between fails its guard."""
    stored = yield from read(selection, bucket_reads.documents(selection, ids), raw=True)
    buckets = {ObjectId(fields_of(bytes(bucket.raw))[b"_id"][1:]): bytes(bucket.raw) for bucket in stored}
    rows = yield from read(selection, bucket_reads.all_rows(selection, ids), raw=True)
    return buckets, _by_bucket(rows, ())


@dataclass(frozen=True, slots=True)
class _Change:
    """The rows to remove from one bucket; ``bucket`` is ``None`` if it no longer exists."""

    bucket_id: ObjectId
    bucket: bytes | None
    rows: Sequence[bytes]
    removed: Sequence[bytes]


def _apply(removal: Removal, selection: Selection, change: _Change, statement: int | None = None) -> Talk[bool]:
    """Repack or delete the bucket; ``False`` if it is no longer what was read."""
    kept = survivors(change.rows, change.removed)
    if change.bucket is None or kept is None:
        return False
    time = selection.target.options.time_field
    guard = unchanged(change.bucket_id, change.bucket, time)
    bucket = repacked(change.bucket, kept, time.encode()) if kept else None
    if bucket is not None and selection.profile.deletes_from_closed_buckets:
        # Rows have new numbers, so the guards of appends, including late copies, must not match any more.
        bucket = closed(bucket)
    return (yield from removal.change(selection, guard, change.bucket, bucket, statement))


@dataclass(frozen=True, slots=True)
class Found:
    """The measurement that a single delete removes: as readers see it, and without the meta field."""

    bucket_id: ObjectId
    seen: bytes
    columns: bytes


def remove_one(removal: Removal, selection: Selection, statement: int | None = None) -> Talk[bool]:
    """Remove one match; returns whether there was one. Raises ``ExecutedMeanwhile``."""
    for _ in range(ATTEMPTS):
        found = yield from find_one(selection, None)
        if found is None:
            return False
        if (yield from remove_found(removal, selection, found, statement)):
            return True
    raise changed_repeatedly()


def remove_found(removal: Removal, selection: Selection, found: Found, statement: int | None) -> Talk[bool]:
    """Remove this measurement; ``False`` if its bucket is no longer what was read. Raises ``ExecutedMeanwhile``."""
    yield _clear(selection, [found.bucket_id])
    buckets, rows = yield from _stored(selection, [found.bucket_id])
    bucket, removed = buckets.get(found.bucket_id), [found.columns]
    change = _Change(found.bucket_id, bucket, rows.get(found.bucket_id, []), removed)
    applied = yield from _apply(removal, selection, change, statement)
    yield _clear(selection, [found.bucket_id])
    return applied


def find_one(selection: Selection, sort: Mapping[str, Any] | None) -> Talk[Found | None]:
    """The first match in the order of ``sort``, or any match without one."""
    then = first_of(sort)
    meta = _meta_name(selection)
    for _ in range(ATTEMPTS):
        ids = yield from _buckets_to_search(selection, sort, then)
        for bucket_id in ids:
            rows = yield from read(selection, bucket_reads.matches(selection, bucket_id, then), raw=True)
            for row in rows:
                return Found(bucket_id, bytes(row.raw), columns_of(bytes(row.raw), meta))
        if not ids or selection.sees_whole_rows:
            return None
    raise changed_repeatedly()


def _buckets_to_search(
    selection: Selection, sort: Mapping[str, Any] | None, then: Sequence[Stage]
) -> Talk[list[ObjectId]]:
    if selection.sees_whole_rows and not sort:
        page = yield from read(selection, bucket_reads.candidates(selection, None, 2**31))
        return [bucket["_id"] for bucket in page]
    buckets = selection.split.bucket or {}
    rows = yield from read(selection, bucket_reads.tagged_matches(selection, buckets, then), raw=True)
    return [_tagged_id(bytes(row.raw)) for row in rows]


def first_of(sort: Mapping[str, Any] | None) -> list[Stage]:
    """The stages that keep only the first row."""
    return [*([{"$sort": sort}] if sort else []), {"$limit": 1}]
