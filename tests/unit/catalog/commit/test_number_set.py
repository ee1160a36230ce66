"""A set of statement ids costs as much as it has runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catalog.commit.number_set import NumberSet


@given(st.lists(st.integers(0, 30)))
def test_number_set_holds_what_was_added(numbers: list[int]) -> None:
    kept = NumberSet()
    for number in numbers:
        kept.add(number)
    assert [number for number in range(-1, 32) if number in kept] == sorted(set(numbers))
    assert kept.runs == sum(1 for number in set(numbers) if number - 1 not in set(numbers))


def test_a_bulk_insert_costs_one_run_whatever_the_order_of_its_commits() -> None:
    kept = NumberSet()
    for number in [*range(0, 1000, 2), *range(1, 1000, 2)]:
        kept.add(number)
    assert kept.runs == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_a_set_of_numbers_takes_whole_runs(runs: list[tuple[int, int]]) -> None:
    kept, numbers = NumberSet(), set[int]()
    for start, end in runs:
        kept.add_run(start, end)
        numbers.update(range(start, end))
    assert [number for number in range(32) if number in kept] == sorted(numbers)
    assert kept.runs == sum(number - 1 not in numbers for number in numbers)


def test_a_long_run_is_added_at_once() -> None:
    kept = NumberSet()
    kept.add(7)
    kept.add_run(0, 2**31)
    assert kept.spans() == [(0, 2**31)]
