from __future__ import annotations

from proxy.observe.bounded_counts import LONGEST_TEXT, OTHERS, BoundedCounts


def test_the_first_texts_have_counts_of_their_own() -> None:
    counts = BoundedCounts(3)
    for text in ("a", "b", "c", "d", "a", "e", "a"):
        counts.count(text)
    assert counts.items() == [("a", 3), ("b", 1), ("c", 1), (OTHERS, 2)]


def test_ten_thousand_texts_are_bounded() -> None:
    counts = BoundedCounts()
    for number in range(10_000):
        counts.count(f"{number} " + "x" * 1_000)
    items = counts.items()
    assert len(items) == 101
    assert sum(count for _, count in items) == 10_000
    assert max(len(text) for text, _ in items) <= LONGEST_TEXT
