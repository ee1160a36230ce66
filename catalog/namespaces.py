"""Namespaces, the options of a time-series collection, and which namespaces are virtual.

The only module that spells ``system.buckets.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, assert_never

BUCKETS_PREFIX = "system.buckets."

LONGEST_FIELD_NAME = 255
"""Maximum length of the time field and the meta field of a virtual collection.

A server allows megabytes. Every bucket, header and rewritten command repeats these names, and every listing keeps them,
so commands on collections with longer ones are relayed.
"""


class Namespace(NamedTuple):
    """A database and a collection name."""

    database: str
    collection: str

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"

    @property
    def is_buckets(self) -> bool:
        """Whether this is a bucket namespace (W1)."""
        return self.collection.startswith(BUCKETS_PREFIX)

    @property
    def buckets(self) -> Namespace:
        """The bucket namespace of this collection (W1)."""
        return Namespace(self.database, BUCKETS_PREFIX + self.collection)

    @property
    def logical(self) -> Namespace:
        """The collection whose buckets are stored here; itself for any other namespace."""
        if self.is_buckets:
            return Namespace(self.database, self.collection[len(BUCKETS_PREFIX) :])
        return self


class Granularity(Enum):
    """The presets of W31."""

    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"

    @property
    def rounding_seconds(self) -> int:
        """How far a bucket's start is rounded down (W31)."""
        match self:
            case Granularity.SECONDS:
                return 60
            case Granularity.MINUTES:
                return 3_600
            case Granularity.HOURS:
                return 86_400
        assert_never(self)

    @property
    def max_span_seconds(self) -> int:
        """The time that one bucket may cover (W31)."""
        match self:
            case Granularity.SECONDS:
                return 3_600
            case Granularity.MINUTES:
                return 86_400
            case Granularity.HOURS:
                return 2_592_000
        assert_never(self)


@dataclass(frozen=True, slots=True)
class TimeseriesOptions:
    """The materialised ``timeseries`` options of a collection (C1).

    ``granularity`` is ``None`` if custom spans (6.3+, C44) are used.
    """

    time_field: str
    meta_field: str | None
    granularity: Granularity | None
    max_span_seconds: int
    rounding_seconds: int

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TimeseriesOptions:
        """From the options that ``listCollections`` reports (C20); these are complete and valid."""
        word = document.get("granularity")
        granularity = Granularity(word) if word is not None else None
        preset = granularity or Granularity.SECONDS
        rounding = document.get("bucketRoundingSeconds")
        return cls(
            time_field=document["timeField"],
            meta_field=document.get("metaField"),
            granularity=granularity,
            max_span_seconds=int(document.get("bucketMaxSpanSeconds", preset.max_span_seconds)),
            rounding_seconds=int(rounding) if rounding is not None else preset.rounding_seconds,
        )


@dataclass(frozen=True, slots=True)
class VirtualCollection:
    """A time-series collection as the backend stores it.

    ``uuid`` identifies the incarnation of the bucket collection, ``b""`` if the backend shows none;
    ``collation`` is the stored default collation, ``None`` for simple binary comparison;
    ``extended_range``: whether times outside 1970–2106 may be stored, for which the order of bucket ids is not the
    order of time (Q12). ``mixed_types``: whether a bucket may have values of different types in one field (Q16).
    ``lastpoint_indexes``: the first path, with its direction, of each index that continues with time descending;
    ``None`` if unknown.
    """

    namespace: Namespace
    options: TimeseriesOptions
    uuid: bytes = b""
    collation: Mapping[str, Any] | None = field(default=None, compare=False)
    extended_range: bool = field(default=False, compare=False)
    mixed_types: bool = field(default=False, compare=False)
    lastpoint_indexes: frozenset[tuple[str, int]] | None = field(default=None, compare=False)

    @property
    def buckets(self) -> Namespace:
        """The namespace of its buckets."""
        return self.namespace.buckets
