"""Readers that stay are a hindrance after a while, and only as long as they are met."""

from __future__ import annotations

from catalog.hindrances import BATCHES_OF_A_ROUND, LATELY_SECONDS, LOAD_SECONDS, Hindrances, Load
from catalog.open_bucket import CollectionBuckets
from catalog.stats import Counters
from tests.support.catalog_parts import virtual

APART_SECONDS = 30.0


def buckets() -> CollectionBuckets:
    return CollectionBuckets(virtual(), Counters())


def test_readers_hinder_after_they_were_in_the_way_for_long() -> None:
    one, other, hindrances = buckets(), buckets(), Hindrances()
    assert not hindrances.are_known
    for second in range(0, 31, 10):
        assert not hindrances.hinder(one, second, APART_SECONDS)
        hindrances.tried(one, second, alone=False)
    assert hindrances.are_known
    assert hindrances.hinder(one, 30, APART_SECONDS)
    assert not hindrances.hinder(other, 30, APART_SECONDS)
    hindrances.tried(one, 31, alone=True)
    assert not hindrances.are_known


def test_what_is_not_tried_any_more_does_not_hinder() -> None:
    one, hindrances = buckets(), Hindrances()
    for second in range(0, 41, 10):
        hindrances.tried(one, second, alone=False)
    assert not hindrances.hinder(one, 41 + LATELY_SECONDS, APART_SECONDS)
    assert not hindrances.are_known


def test_others_that_share_the_backend_hinder_everything() -> None:
    hindrances = Hindrances()
    hindrances.is_shared = True
    assert hindrances.are_known
    assert hindrances.hinder(buckets(), 0, APART_SECONDS)


def test_load_grows_with_rounds_and_is_forgotten() -> None:
    load = Load()
    for tenth in range(10):
        load.committed(1, tenth / 10)
    assert 5 < load.level < 10.5
    load.committed(1, 1 + 2 * LOAD_SECONDS)
    assert load.level < 1.1


def test_rounds_that_concern_many_buckets_are_more_load() -> None:
    few, many = Load(), Load()
    few.committed(1, 1.0)
    many.committed(10 * BATCHES_OF_A_ROUND, 1.0)
    assert many.level > 10 * few.level
