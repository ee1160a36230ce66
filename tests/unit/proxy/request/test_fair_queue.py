"""Who has few or cheap things waiting does not wait for those who have many or dear ones."""

from __future__ import annotations

import random

from proxy.request.fair_queue import FairQueue


def drained(queue: FairQueue[str]) -> str:
    return "".join(queue.pop() for _ in range(len(queue)))


def test_owners_take_turns_and_each_has_its_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "abcd":
        queue.add("many", 1, item)
    for item in "xy":
        queue.add("few", 1, item)
    assert drained(queue) == "axbycd"


def test_who_comes_later_waits_for_one_of_each_other() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "abcdef":
        queue.add("many", 1000, item)
    assert [queue.pop() for _ in range(3)] == ["a", "b", "c"]
    queue.add("late", 1, "x")
    assert [queue.pop() for _ in range(2)] in (["x", "d"], ["d", "x"])


def test_dear_items_are_not_starved_by_cheap_ones_that_keep_coming() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "AB":
        queue.add("dear", 100, item)
    seen = ""
    for _ in range(300):
        queue.add("cheap", 1, "c")
        seen += queue.pop()
    assert (seen.index("A"), seen.index("B") <= 103) == (0, True)


def test_shares_are_by_cost_whatever_the_sizes() -> None:
    """Of two owners who have much waiting, or one thing after the other, each gets as much within a few items."""
    queue: FairQueue[tuple[str, int]] = FairQueue()
    chance = random.Random(7)
    got = {"large": 0, "small": 0}
    for owner in ("large", *["small"] * 3):
        cost = chance.randrange(500, 1000) if owner == "large" else chance.randrange(1, 10)
        queue.add(owner, cost, (owner, cost))
    for _ in range(5000):
        owner, cost = queue.pop()
        got[owner] += cost
        again = chance.randrange(500, 1000) if owner == "large" else chance.randrange(1, 10)
        queue.add(owner, again, (owner, again))
        assert abs(got["large"] - got["small"]) <= 2000


def test_those_that_wait_no_more_leave_nothing_behind() -> None:
    queue: FairQueue[int] = FairQueue()
    for round_number in range(1000):
        numbers = [queue.add(owner, 1, round_number) for owner in range(3)]
        assert queue.get(numbers[1]) == round_number
        queue.discard(numbers[1])
        queue.discard(numbers[1])
        assert queue.get(numbers[1]) is None
        assert queue.oldest == queue.pop_oldest() == round_number
        assert queue.pop() == round_number
        assert not queue
    assert (len(queue._items), len(queue._owners)) == (0, 0)
    assert len(queue._heap) <= 66
    queue.add("waits", 1_000_000, 0)
    queue.add("waits", 1, 0)
    for owner in range(1000):
        queue.add(owner, 1000, 0)
        queue.pop()
    assert len(queue._owners) <= 80


def test_the_first_item_is_the_next_one() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "ab":
        queue.add("one", 5, item)
    queue.add("two", 1, "x")
    while queue:
        first = queue.first
        assert queue.first == first
        assert queue.pop() == first
    numbers = [queue.add("one", 5, item) for item in "abc"]
    queue.discard(numbers[0])
    assert queue.first == "b"
