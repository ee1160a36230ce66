"""Rewrites a pipeline on measurements as a pipeline on buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rewrite.stages.dependencies import include_needed_columns
from rewrite.stages.distinct import distinct_from_headers
from rewrite.stages.draft import Draft, Rule, Stage, only
from rewrite.stages.empty_names import find_empty_names
from rewrite.stages.group import count_from_headers, group_from_headers
from rewrite.stages.hazards import keep_optimiser_out
from rewrite.stages.joins import keep_variables_apart
from rewrite.stages.lastpoint import pick_latest_buckets
from rewrite.stages.limit import push_limit
from rewrite.stages.match import push_leading_match
from rewrite.stages.scope import Scope
from rewrite.stages.unions import keep_stages_behind_unions

RULES: tuple[Rule, ...] = (
    find_empty_names,
    keep_stages_behind_unions,
    keep_optimiser_out,
    push_leading_match,
    count_from_headers,
    distinct_from_headers,
    group_from_headers,
    pick_latest_buckets,
    push_limit,
    include_needed_columns,
    keep_variables_apart,
)
"""The rules in the order of their application; each returns a draft unchanged that it does not recognise."""


def rewrite_pipeline(pipeline: Sequence[Stage], scope: Scope) -> list[Stage]:
    """The stages to run on the bucket collection, with the same result as ``pipeline`` on the measurements."""
    return _drafted(pipeline, scope).stages(scope)


def guess_pipeline(pipeline: Sequence[Stage], scope: Scope) -> tuple[list[Stage], bool]:
    """As ``rewrite_pipeline``, or faster stages that fail with ``GUESS_FAILED`` for unusual stored values; which it is.

    There is no guess in a transaction, because an error would abort it.
    """
    if scope.in_transaction or not any(only(stage)[0] in _GUESSED for stage in pipeline):
        return rewrite_pipeline(pipeline, scope), False
    # A draft without a guess is the same as one that must not guess.
    draft = _drafted(pipeline, replace(scope, may_guess=True))
    return draft.stages(scope), draft.guesses


_GUESSED = frozenset({"$count", "$group"})


def _drafted(pipeline: Sequence[Stage], scope: Scope) -> Draft:
    draft = Draft(head=(), tail=tuple(pipeline))
    for rule in RULES:
        draft = rule(draft, scope)
    return draft
