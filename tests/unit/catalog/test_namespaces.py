from __future__ import annotations

from typing import Any

import pytest

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection


def test_w1_buckets_have_a_namespace_of_their_own() -> None:
    x = Namespace("db", "x")
    assert str(x.buckets) == "db.system.buckets.x"
    assert (x.is_buckets, x.buckets.is_buckets) == (False, True)
    assert x.logical == x.buckets.logical == x


@pytest.mark.parametrize(("word", "rounding", "span"), [("seconds", 60, 3600), ("hours", 86_400, 2_592_000)])
def test_w31_presets(word: str, rounding: int, span: int) -> None:
    granularity = Granularity(word)
    assert (granularity.rounding_seconds, granularity.max_span_seconds) == (rounding, span)


@pytest.mark.parametrize(
    ("document", "options"),
    [
        ({}, TimeseriesOptions("t", None, None, 3600, 60)),
        ({"granularity": "minutes"}, TimeseriesOptions("t", None, Granularity.MINUTES, 86_400, 3_600)),
        (
            {"metaField": "m", "bucketMaxSpanSeconds": 50, "bucketRoundingSeconds": 50},
            TimeseriesOptions("t", "m", None, 50, 50),
        ),
    ],
)
def test_c20_c44_options_as_the_listing_shows_them(document: dict[str, Any], options: TimeseriesOptions) -> None:
    assert TimeseriesOptions.from_document({"timeField": "t", **document}) == options


def test_collections_are_equal_by_their_incarnation() -> None:
    options = TimeseriesOptions("t", "m", None, 50, 50)
    one = VirtualCollection(Namespace("db", "x"), options, b"1")
    assert one == VirtualCollection(Namespace("db", "x"), options, b"1", extended_range=True)
    assert one != VirtualCollection(Namespace("db", "x"), options, b"2")
    assert one.buckets == Namespace("db", "system.buckets.x")
