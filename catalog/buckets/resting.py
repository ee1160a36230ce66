"""The buckets of this process that rest: each is one stored document, and gets no rows for now.

Where several processes write the same series, each has a bucket of its own for it (``catalog.background.gathering``).
Only those that rest are gathered, so nobody waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from catalog.buckets.open_bucket import Bucket

MOST_RESTING: Final = 20_000
"""Maximum number of remembered buckets before, and again after, they are reported; others keep their rows."""
LOOKED_AT_ONCE: Final = 500
"""Maximum number of buckets examined in one piece."""
SERIES_BYTES: Final = 16
"""Length of the digest of a series."""


class Rested(NamedTuple):
    """A bucket that rests, as its process tells of it.

    ``collection``: the UUID; ``series``: a digest of collection and meta value, the same in every process, with a key,
    so that whoever reads it cannot try meta values; ``size_bytes``: what a measurement must fit into (W46).
    """

    collection: bytes
    series: bytes
    stored_id: bytes
    rows: int
    size_bytes: int


class Given(NamedTuple):
    """A document that its process has given up, with all rows that it knows of."""

    stored_id: bytes
    rows: int


class Resting:
    """Remembers the ids of buckets that have become one document, if other processes are there (``is_wanted``).

    Ids only: a bucket dropped for lack of memory no longer counts as resting.
    """

    __slots__ = ("_find", "_rest_seconds", "_told", "_untold", "is_wanted")

    def __init__(self, find: Callable[[bytes], Bucket | None], rest_seconds: float) -> None:
        """``find`` gives the bucket in memory to which a document belongs.

        ``rest_seconds``: the latest bucket of a series rests when this process has stored no part for this time.
        """
        self.is_wanted = False
        self._find = find
        self._rest_seconds = rest_seconds
        self._untold: dict[bytes, None] = {}
        self._told: dict[bytes, int] = {}
        """The number of rows that was told, by the id of the document."""

    def note(self, bucket: Bucket) -> None:
        """The bucket is one document now."""
        if self.is_wanted and len(self._untold) < MOST_RESTING:
            self._untold[_stored_id(bucket)] = None

    @property
    def untold(self) -> int:
        """The number of buckets that may rest and have not been reported."""
        return len(self._untold)

    def take(self, now_seconds: float, stored_at_seconds: float, series_key: bytes) -> list[Rested]:
        """Some buckets that rest and were not told of; ``stored_at_seconds``: when this process stored its latest part.

        From now on, all are remembered. ``series_key``: of the digests, the same in all processes.
        """
        self.is_wanted = True
        is_quiet = now_seconds - stored_at_seconds >= self._rest_seconds
        found: list[Rested] = []
        for stored_id in list(islice(self._untold, LOOKED_AT_ONCE)):
            del self._untold[stored_id]
            bucket = self._whole(stored_id)
            if bucket is None:
                # It is noted again when it is one document again.
                continue
            is_left = bucket.series.current is not bucket
            if now_seconds < bucket.copies_until_seconds or not (is_quiet or is_left):
                self._untold[stored_id] = None
                continue
            self._told.pop(stored_id, None)
            self._told[stored_id] = bucket.state.rows
            found.append(_rested(bucket, stored_id, series_key))
        for stored_id in list(islice(self._told, max(0, len(self._told) - MOST_RESTING))):
            del self._told[stored_id]
        return found

    def bucket(self, stored_id: bytes, now_seconds: float) -> Bucket | None:
        """The bucket that is this document, if it still rests as it was told of."""
        rows, bucket = self._told.get(stored_id), self._whole(stored_id)
        if rows is None or bucket is None or now_seconds < bucket.copies_until_seconds:
            return None
        if bucket.state.rows != rows:
            self.forget(stored_id)
            self.note(bucket)
            return None
        return bucket

    def _whole(self, stored_id: bytes) -> Bucket | None:
        bucket = self._find(stored_id)
        return bucket if bucket is not None and _stored_id(bucket) == stored_id and _is_whole(bucket) else None

    def forget(self, stored_id: bytes) -> None:
        """This document is no longer a bucket that rests."""
        self._told.pop(stored_id, None)

    def forget_all(self) -> None:
        """There is no other process any more."""
        self.is_wanted = False
        self._untold.clear()
        self._told.clear()

    def tell_again(self) -> None:
        """Another process gathers from now on."""
        told, self._told = self._told, {}
        self._untold |= dict.fromkeys(told)


def _stored_id(bucket: Bucket) -> bytes:
    return bucket.state.bucket_id if bucket.parts is None else bucket.parts.last_id


def _is_whole(bucket: Bucket) -> bool:
    parts, buckets = bucket.parts, bucket.series.collection
    if not bucket.own or not bucket.state.committed_rows:
        return False
    if parts is not None and (parts.stored != 1 or parts.joining or parts.full):
        return False
    if buckets.replaced or buckets.holds_extended_range or bucket.is_cleared:
        return False
    return bucket.is_known and bucket.is_idle


def _rested(bucket: Bucket, stored_id: bytes, series_key: bytes) -> Rested:
    uuid = bucket.series.collection.collection.uuid
    series = blake2b(uuid + bucket.series.meta, key=series_key, digest_size=SERIES_BYTES).digest()
    return Rested(uuid, series, stored_id, bucket.state.rows, bucket.state.size_bytes)
