from __future__ import annotations

import tracemalloc
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from catalog.bounded import ENTRY_BYTES, BoundedCache, remember


def test_the_oldest_of_too_many_entries_is_forgotten() -> None:
    record: OrderedDict[str, int] = OrderedDict()
    assert [remember(record, key, value, 2) for value, key in enumerate("ab")] == [None, None]
    assert remember(record, "a", 2, 2) is None
    assert list(record.items()) == [("b", 1), ("a", 2)]
    assert remember(record, "c", 3, 2) == 1
    assert list(record.items()) == [("a", 2), ("c", 3)]


def lengths(key: bytes, value: bytes) -> int:
    return len(key) + len(value)


def cache_of(limit_bytes: int) -> BoundedCache[bytes, bytes]:
    return BoundedCache(limit_bytes, lengths)


def test_what_was_not_asked_for_longest_goes_first() -> None:
    cache = cache_of(3 * (ENTRY_BYTES + 2))
    for key in (b"a", b"b", b"c"):
        cache.put(key, b"1")
    assert cache.get(b"a") == b"1"
    assert cache.peek(b"b") == b"1"
    cache.put(b"d", b"1")
    assert [key for key, _ in cache.items()] == [b"c", b"a", b"d"]


def test_newest_stays_however_heavy() -> None:
    cache = cache_of(1000)
    cache.put(b"a", b"1")
    cache.put(b"b", b"x" * 10_000)
    assert [key for key, _ in cache.items()] == [b"b"]
    cache.put(b"c", b"1")
    assert [key for key, _ in cache.items()] == [b"c"]


def test_another_value_has_another_weight() -> None:
    cache = cache_of(10_000)
    cache.put(b"a", b"x" * 100)
    cache.put(b"a", b"x")
    assert cache.size_bytes == ENTRY_BYTES + 2
    cache.discard(b"a")
    cache.discard(b"a")
    assert (cache.size_bytes, len(cache), cache.get(b"a"), b"a" in cache) == (0, 0, None, False)


CALLS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "discard", "clear"]), st.binary(max_size=2), st.binary(max_size=900))
)


@given(CALLS)
def test_it_behaves_as_a_list_that_is_counted_anew_each_time(calls: list[tuple[str, bytes, bytes]]) -> None:
    limit = 2_000
    cache, model = cache_of(limit), OrderedDict[bytes, bytes]()
    for call, key, value in calls:
        match call:
            case "get":
                assert cache.get(key) == model.get(key)
                if key in model:
                    model.move_to_end(key)
            case "put":
                model.pop(key, None)
                model[key] = value
                cache.put(key, value)
                while sum(lengths(*item) + ENTRY_BYTES for item in model.items()) > limit and len(model) > 1:
                    model.popitem(last=False)
            case "discard":
                model.pop(key, None)
                cache.discard(key)
            case _:
                model.clear()
                cache.clear()
        assert cache.items() == list(model.items())
        assert cache.size_bytes == sum(lengths(*item) + ENTRY_BYTES for item in model.items())
        assert len(cache) == len(model)


def test_memory_is_what_it_counts() -> None:
    """Small entries, of which there may be most."""
    limit = 4_000_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = cache_of(limit)
        for number in range(40_000):
            cache.put(b"%08d" % number, b"v%08d" % number)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(cache) < 40_000
    assert used < 1.2 * limit
