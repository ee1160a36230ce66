"""The rules in their order. ``tests/golden`` holds whole pipelines."""

from __future__ import annotations

from dataclasses import replace

from rewrite.stages.pipeline import RULES, guess_pipeline, rewrite_pipeline
from tests.support.scopes import OLD_SCOPE, SCOPE


def test_an_unknown_pipeline_is_unpacked_and_left_alone() -> None:
    """Whatever is not understood keeps its place after the unpacking."""
    stages = [{"$unheard": {"a": 1}}, {"$match": {"m": 1}}]
    unpack, *rest = rewrite_pipeline(stages, SCOPE)
    assert list(unpack) == ["$_internalUnpackBucket"]
    assert rest == stages


def test_hazards_are_known_before_anything_moves() -> None:
    assert [rule.__name__ for rule in RULES][:2] == ["keep_optimiser_out", "push_leading_match"]
    assert {"$_internalInhibitOptimization": {}} in rewrite_pipeline([], OLD_SCOPE)


def test_guesses_are_made_for_groups_outside_of_transactions() -> None:
    """H4, X1: an error would end a transaction."""
    stages = [{"$group": {"_id": "$m", "high": {"$max": "$v"}}}]
    assert guess_pipeline(stages, SCOPE) is not None
    assert guess_pipeline(stages, replace(SCOPE, in_transaction=True)) is None
    assert guess_pipeline([{"$match": {"v": 1}}], SCOPE) is None
    assert guess_pipeline([{"$group": {"_id": "$v"}}], SCOPE) is None
