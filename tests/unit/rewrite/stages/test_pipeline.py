"""The rules in their order. ``tests/golden`` holds whole pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rewrite.stages.pipeline import RULES, guess_pipeline, rewrite_pipeline
from tests.support.scopes import OLD_SCOPE, SCOPE


def test_an_unknown_pipeline_is_unpacked_and_left_alone() -> None:
    """Whatever is not understood keeps its place after the unpacking."""
    stages = [{"$unheard": {"a": 1}}, {"$match": {"m": 1}}]
    unpack, *rest = rewrite_pipeline(stages, SCOPE)
    assert list(unpack) == ["$_internalUnpackBucket"]
    assert rest == stages


def test_hazards_are_known_before_anything_moves() -> None:
    """Those of unions (H15) move a ``$match`` to the front, which the others then see there, as H18 has it."""
    first = ["find_empty_names", "keep_stages_behind_unions", "keep_optimiser_out", "push_leading_match"]
    assert [rule.__name__ for rule in RULES][:4] == first
    assert {"$_internalInhibitOptimization": {}} in rewrite_pipeline([], OLD_SCOPE)


def test_guesses_are_made_for_groups_outside_of_transactions() -> None:
    """H4, X1: an error would end a transaction."""
    stages = [{"$group": {"_id": "$m", "high": {"$max": "$v"}}}]
    guess, is_guess = guess_pipeline(stages, SCOPE)
    assert is_guess
    assert guess != rewrite_pipeline(stages, SCOPE)
    in_transaction = replace(SCOPE, in_transaction=True)
    assert guess_pipeline(stages, in_transaction) == (rewrite_pipeline(stages, in_transaction), False)


@pytest.mark.parametrize("extended_range", [False, True])
@pytest.mark.parametrize(
    "stages",
    [
        [{"$match": {"v": 1}}],
        [{"$match": {"m": 1, "v": {"$gt": 2}}}, {"$group": {"_id": "$v"}}],
        [{"$match": {"m": 1}}, {"$group": {"_id": "$m", "high": {"$avg": "$v"}}}],
        [{"$group": {"_id": "$m", "last": {"$max": "$m"}}}],
        [{"$sort": {"t": 1}}, {"$group": {"_id": "$m", "last": {"$last": "$v"}, "n": {"$sum": 1}}}],
    ],
)
def test_what_is_no_guess_is_what_is_sure(stages: list[dict[str, Any]], extended_range: bool) -> None:
    """The pipeline is rewritten once in both cases."""
    scope = replace(SCOPE, extended_range=extended_range)
    assert guess_pipeline(stages, scope) == (rewrite_pipeline(stages, scope), False)
