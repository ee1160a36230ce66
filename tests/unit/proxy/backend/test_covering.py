"""Queries for buckets that may hold measurements; see also ``test_bucket_store``."""

from __future__ import annotations

import random
from typing import Any

import bson

from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.backend.covering import covering_query
from tests.support.generated_rows import document, element, metas, text
from tests.support.mongod import MongodProcess
from tests.support.raw_rows import elements, split
from tests.support.stored_metas import stored_metas

X = VirtualCollection(Namespace("d", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))


def arms(*metas: bytes) -> list[dict[str, Any]]:
    query = covering_query(X, [(meta, 7_200_000) for meta in metas])
    decoded: list[dict[str, Any]] = bson.decode(bson.encode(query))["$or"]
    return decoded


def test_series_of_every_kind() -> None:
    assert arms(b"", b"\x10\x05\0\0\0", b"\x0a") == [{"meta": {"$in": [5, None]}}, {"meta": {"$exists": False}}]


def test_w35_undefined_is_stored_as_null() -> None:
    assert arms(b"\x06") == [{"meta": {"$in": [None]}}]


def test_metas_of_every_shape_are_found_by_the_server(mongod: MongodProcess, db_name: str) -> None:
    """Each alone, and all in one look; one that is refused would take the look of all others with it."""
    native = mongod.shared_client[db_name]
    sent = [*metas(random.Random(5), 120), *(element("m", (0x0E, text(each))) for each in ("a", "no UTF-8 \udcff"))]
    sent += [element("m", (3, document(element("$in", (0x10, bytes(4)))))), element("m", (0x0B, b"a\0i\0"))]
    stored = set(stored_metas(native, [each for each in sent if each[:1] != b"\x06"]).values())
    wanted = [(each[:1] + each[3:] if each else b"", 0) for each in stored]
    for some in ([one] for one in wanted):
        assert metas_found(native, some) >= {each for each, _ in some}
    assert metas_found(native, wanted) == {each for each, _ in wanted}


def metas_found(native: Any, wanted: list[tuple[bytes, int]]) -> set[bytes]:
    twin = VirtualCollection(Namespace(native.name, "twin"), X.options)
    found = native["system.buckets.twin"].find_raw_batches(covering_query(twin, wanted), {"meta": 1})
    return {
        dict(elements(raw)).get(b"meta", b"")[:1] + dict(elements(raw)).get(b"meta", b"")[6:]
        for chunk in found
        for raw in split(chunk)
    }
