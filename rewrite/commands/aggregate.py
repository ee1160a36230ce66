"""``aggregate`` on measurements (Q1, C23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.namespaces import VirtualCollection
from rewrite.commands.reading import guessed, reads_buckets, scope_of
from rewrite.commands.statistics import is_collection_statistics, rewrite_collection_statistics
from rewrite.indexes import bucket_hint
from rewrite.plan import Cursor, PassThrough, Plan, Request, Single, Step
from rewrite.stages.draft import only
from rewrite.stages.pipeline import rewrite_pipeline

LEFT_TO_THE_VIEW = frozenset(
    {
        "$changeStream", "$collStats", "$currentOp", "$documents", "$geoNear", "$indexStats", "$listLocalSessions",
        "$listSampledQueries", "$listSearchIndexes", "$listSessions", "$planCacheStats", "$search", "$searchMeta",
        "$vectorSearch",
    }
)  # fmt: skip
"""Stages about the collection, not its measurements, or that must be first in a pipeline (C23, Q5)."""


def rewrite_aggregate(request: Request) -> Plan:
    """An aggregate on the buckets; pipelines that begin with a stage about the collection go to the view."""
    if request.target is None or not reads_buckets(request):
        return PassThrough()
    if is_collection_statistics(request.body.get("pipeline")):
        return rewrite_collection_statistics(request, request.target)
    body = translate_aggregate(request.body, request.target, request)
    if body is None:
        return PassThrough()
    step = Step(request.namespace.database, body)
    if body.get("explain"):
        return Single(step)
    guess = guessed(body, request.body, request.body["pipeline"], request.target, request)
    if guess is None:
        return Cursor(step, request.namespace)
    return Cursor(guess, request.namespace, otherwise=step)


def translate_aggregate(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any] | None:
    """The same aggregate on the buckets."""
    pipeline = body.get("pipeline")
    if not isinstance(pipeline, list) or not all(isinstance(stage, dict) and only(stage)[0] for stage in pipeline):
        return None
    if pipeline and (only(pipeline[0])[0] in LEFT_TO_THE_VIEW or only(pipeline[0])[0].startswith("$_internal")):
        return None
    command = dict(body)
    command["aggregate"] = target.buckets.collection
    command["pipeline"] = rewrite_pipeline(pipeline, scope_of(body, target, request))
    if command.get("hint"):
        command["hint"] = bucket_hint(command["hint"], target.options)
    return command
