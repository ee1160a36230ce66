"""What a join reads, and which documents of it belong to which bucket, or go.

The parts of neighbouring buckets lie side by side in each segment (``catalog.parts``). So a join of many buckets reads
a few ranges of ids, and deletes what it has joined in a few ranges, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from catalog.parts import PLACE_AT, IdRange, id_of
from catalog.ports import Span

RangeDocuments: TypeAlias = Sequence[bytes]
"""All documents in a range of ids, in their order, some of which may be of others."""


def windows(spans: Sequence[Span]) -> list[tuple[IdRange, list[IdRange]]]:
    """A range for each segment of the spans, from the first to the last id, and the ranges of the spans in it."""
    by_segment: dict[bytes, list[IdRange]] = {}
    for span in spans:
        for each in span.ranges:
            by_segment.setdefault(each.first_id[:PLACE_AT], []).append(each)
    return [(_around(each), each) for each in by_segment.values()]


def _around(ranges: Sequence[IdRange]) -> IdRange:
    first_id = min(each.first_id for each in ranges)
    last_id = max(each.last_id for each in ranges)
    return IdRange(first_id, last_id, sum(each.documents for each in ranges))


def by_span(readings: Iterable[RangeDocuments], spans: Sequence[Span]) -> list[list[bytes]]:
    """The documents of each span in the order of its ranges."""
    documents = sorted((id_of(each), each) for each in chain.from_iterable(readings))
    ranges = sorted(
        (each.first_id, each.last_id, number, position)
        for number, span in enumerate(spans)
        for position, each in enumerate(span.ranges)
    )
    found: list[list[list[bytes]]] = [[[] for _ in span.ranges] for span in spans]
    at = 0
    for first_id, last_id, number, position in ranges:
        while at < len(documents) and documents[at][0] <= last_id:
            if documents[at][0] >= first_id:
                found[number][position].append(documents[at][1])
            at += 1
    return [list(chain.from_iterable(each)) for each in found]


def ranges_of(reading: RangeDocuments, ids: set[bytes]) -> list[IdRange]:
    """Ranges that have these of the documents, and no others."""
    ranges: list[IdRange] = []
    is_open = False
    for identity in map(id_of, reading):
        if identity not in ids:
            is_open = False
        elif is_open:
            ranges[-1] = ranges[-1].up_to(identity)
        else:
            ranges.append(IdRange(identity, identity, 1))
            is_open = True
    return ranges
