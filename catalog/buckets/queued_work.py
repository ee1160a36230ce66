"""What the catalog queues: work for the committer, and measurements that wait for look-ups."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from catalog.buckets.open_bucket import CollectionBuckets, Series
from catalog.buckets.write_batch import WriteBatch


@dataclass(frozen=True, slots=True)
class BucketSearch:
    """A look-up of stored buckets for ``wanted`` (series, time in ms) of one collection."""

    buckets: CollectionBuckets
    wanted: tuple[tuple[Series, int], ...]
    generation: int


@dataclass(slots=True)
class Work:
    """Work that the catalog queues for the committer."""

    unclaimed: list[WriteBatch] = field(default_factory=list)
    ready: list[WriteBatch] = field(default_factory=list)
    openings: list[CollectionBuckets] = field(default_factory=list)
    lookups: dict[CollectionBuckets, list[tuple[Series, int]]] = field(default_factory=dict)
    resuming: deque[Series] = field(default_factory=deque)
    """Series whose look-up has ended and whose parked measurements are to be placed."""
    is_resuming: bool = False
    """Whether a task places them already."""
    failed_openings: deque[Series] = field(default_factory=deque)
    """Series whose collection could not be looked up; their measurements are placed without another look-up."""
    cleared: list[dict[bytes, Series]] = field(default_factory=list)
    """Series of dropped and cleared collections, whose buckets are to be freed."""
    is_freeing: bool = False
    """Whether a task frees them already."""
