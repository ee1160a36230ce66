"""Readers that stay are a hindrance after a while, and only as long as they are met."""

from __future__ import annotations

from catalog.hindrances import LATELY_SECONDS, Hindrances
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
