"""Queries for buckets that may hold measurements; see also ``test_bucket_store``."""

from __future__ import annotations

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.backend.covering import covering_query

X = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))


def test_series_of_every_kind() -> None:
    wanted = [(b"", 7_200_000), (b"\x10\x05\0\0\0", 7_200_000), (b"\x0a", 7_200_000)]
    assert covering_query(X, wanted)["$or"] == [{"meta": {"$in": [5, None]}}, {"meta": {"$exists": False}}]


def test_a_meta_value_that_cannot_be_decoded_covers_nothing() -> None:
    assert covering_query(X, [(b"\x02\x02\0\0\0\xff\0", 7_200_000)])["$or"] == [{"meta": {"$in": []}}]
