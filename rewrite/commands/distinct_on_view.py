"""``distinct`` values of the meta field for clients that may not read the buckets: through the view (Q25).

For ``distinct``, a server unpacks every row. A ``$group`` by the whole meta value without accumulators it answers from
the headers of buckets, and the values inside follow from its few groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from catalog.namespaces import VirtualCollection
from rewrite.commands.reading import COMMON_OPTIONS, scope_of
from rewrite.plan import Request
from rewrite.stages.draft import Stage, fails_unless
from rewrite.stages.meta_fields import STORED_META
from rewrite.stages.meta_paths import rename_path, rename_predicate

IS_KNOWN = fails_unless({"$gt": ["$_id", None]})
"""Fails for null, which groups have for missing values, too."""


ValueStages: TypeAlias = Callable[[str], list[Stage]]


def distinct_on_view(
    body: Mapping[str, Any], values: ValueStages, target: VirtualCollection, request: Request
) -> dict[str, Any] | None:
    """The ``aggregate`` on the view; ``None`` if the view must answer the ``distinct`` itself.

    ``values``: stages that collect the values at a path.
    """
    path = _path_in_meta(body, target, request)
    if path is None or "." not in path:
        return None
    return _on_view(body, [_by_meta(target), *values(f"_id.{path.partition('.')[2]}")], target)


def guess_on_view(
    body: Mapping[str, Any], values: ValueStages, target: VirtualCollection, request: Request
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """As ``distinct_on_view`` for the whole meta value: a guess, and what is right if that fails; ``None`` if neither.

    There is no guess in a transaction, because an error would abort it.
    """
    if request.in_transaction or _path_in_meta(body, target, request) != STORED_META:
        return None
    guess = [_by_meta(target), IS_KNOWN, *values("_id")]
    return _on_view(body, guess, target), _on_view(body, values(body["key"]), target)


def _path_in_meta(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> str | None:
    """The path of the key in buckets, if its values follow from the groups that the query selects."""
    scope = scope_of(body, target, request)
    query = body.get("query") or {}
    if not (scope.profile.has_native_timeseries and scope.plain_names):
        return None
    if body.get("collation") or target.collation is not None:
        return None
    if query and rename_predicate(query, scope) is None:
        return None
    return rename_path(body["key"], scope)


def _by_meta(target: VirtualCollection) -> Stage:
    return {"$group": {"_id": f"${target.options.meta_field}"}}


def _on_view(body: Mapping[str, Any], stages: Sequence[Stage], target: VirtualCollection) -> dict[str, Any]:
    query = body.get("query") or {}
    pipeline = [*([{"$match": query}] if query else []), *stages]
    options = {name: body[name] for name in COMMON_OPTIONS if name in body}
    return {"aggregate": target.namespace.collection, "pipeline": pipeline, "cursor": {}, **options}
