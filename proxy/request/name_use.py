"""What a name stands for at the backend, from the entries of ``listCollections`` for it and for its buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any

from catalog.namespaces import BUCKETS_PREFIX, Namespace


class NameUse(Enum):
    """What a name stands for."""

    FREE = auto()
    """There is nothing of this name."""
    TIMESERIES = auto()
    """A time-series collection."""
    OTHER = auto()
    """An ordinary collection or a view."""
    BUCKETS_ALONE = auto()
    """Nothing, but there are buckets for it: a ``create`` is under way, or has left them behind (H16)."""
    SPLIT = auto()
    """An ordinary collection or a view, and buckets, into which the backend puts what is inserted (H16)."""


def names_of(namespace: Namespace) -> list[str]:
    """The names of which ``name_use`` needs the entries."""
    return [namespace.collection, BUCKETS_PREFIX + namespace.collection]


def name_use(namespace: Namespace, entries: Iterable[Mapping[str, Any]]) -> NameUse:
    """From the names and types of the entries."""
    types, has_buckets = set(), False
    for entry in entries:
        if entry["name"] == namespace.collection:
            types.add(entry["type"])
        else:
            has_buckets = True
    # 5.0 lists a view over such buckets twice, as a view and as a time-series collection.
    if types == {"timeseries"}:
        return NameUse.TIMESERIES
    if types:
        return NameUse.SPLIT if has_buckets else NameUse.OTHER
    return NameUse.BUCKETS_ALONE if has_buckets else NameUse.FREE
