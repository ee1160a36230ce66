"""``aggregate`` on measurements (Q1, C23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from rewrite.commands.reading import reads_buckets, scope_of, step_or_guess
from rewrite.commands.statistics import is_collection_statistics, rewrite_collection_statistics
from rewrite.indexes import bucket_hint
from rewrite.plan import Cursor, PassThrough, Plan, Request, Single
from rewrite.stages.draft import Stage, only
from rewrite.stages.meta_fields import meta_path
from rewrite.stages.pipeline import rewrite_pipeline

LEFT_TO_THE_VIEW = frozenset(
    {
        "$changeStream", "$collStats", "$currentOp", "$documents", "$geoNear", "$indexStats", "$listLocalSessions",
        "$listSampledQueries", "$listSearchIndexes", "$listSessions", "$planCacheStats", "$search", "$searchMeta",
        "$vectorSearch",
    }
)  # fmt: skip
"""Stages about the collection, not its measurements, or that must be first in a pipeline (C23, Q5)."""

_UUID = "collectionUUID"
"""A view has none: the backend refuses whatever a client names, before the pipeline can write anything (C23)."""


def rewrite_aggregate(request: Request) -> Plan:
    """An aggregate on the buckets; pipelines that begin with a stage about the collection go to the view."""
    if request.target is None:
        return PassThrough()
    refuse_fatal_hint(request.body, request.target)
    if not reads_buckets(request) or _UUID in request.body:
        return PassThrough()
    if is_collection_statistics(request.body.get("pipeline")):
        return rewrite_collection_statistics(request, request.target)
    body, target = request.body, request.target
    pipeline = _pipeline_of(body)
    if pipeline is None:
        return PassThrough()
    step, otherwise = step_or_guess(request, pipeline, target, lambda stages: _on_buckets(body, stages, target))
    return Single(step) if body.get("explain") else Cursor(step, request.namespace, otherwise=otherwise)


def translate_aggregate(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any] | None:
    """The same aggregate on the buckets."""
    pipeline = _pipeline_of(body)
    if pipeline is None or _UUID in body:
        return None
    return _on_buckets(body, rewrite_pipeline(pipeline, scope_of(body, target, request)), target)


def refuse_fatal_hint(body: Mapping[str, Any], target: VirtualCollection) -> None:
    """Raise ``CommandError`` 2 for a ``$geoNear`` on the meta field with the name of the index on ``_id`` as its hint.

    Such a command ends the process of 6.0.5 (H11).
    """
    pipeline = body.get("pipeline")
    if body.get("hint") != "_id_" or not isinstance(pipeline, list) or not pipeline:
        return
    near = pipeline[0].get("$geoNear") if isinstance(pipeline[0], Mapping) else None
    if not isinstance(near, Mapping):
        return
    key = near.get("key")
    if not isinstance(key, str) or meta_path(key, target.options) is not None:
        raise CommandError(2, "hint provided does not correspond to an existing index")


def _pipeline_of(body: Mapping[str, Any]) -> list[Stage] | None:
    """The stages on the measurements; ``None`` for what only the backend answers."""
    pipeline = body.get("pipeline")
    if not isinstance(pipeline, list) or not all(isinstance(stage, dict) and only(stage)[0] for stage in pipeline):
        return None
    if pipeline and (only(pipeline[0])[0] in LEFT_TO_THE_VIEW or only(pipeline[0])[0].startswith("$_internal")):
        return None
    return pipeline


def _on_buckets(body: Mapping[str, Any], stages: Sequence[Stage], target: VirtualCollection) -> dict[str, Any]:
    command = {**body, "aggregate": target.buckets.collection, "pipeline": stages}
    if command.get("hint"):
        command["hint"] = bucket_hint(command["hint"], target.options)
    return command
