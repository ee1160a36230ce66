"""``findAndModify`` with ``remove`` on measurements (U8); its updates are refused by the backend (C23)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bson.raw_bson import RawBSONDocument

from catalog.errors import CommandError
from catalog.queries import NO_DOCUMENT
from rewrite.bucket_reads import Selection, matches, matches_in_image
from rewrite.bucket_writes import (
    EMPTY_BUCKET,
    EXECUTED_AS_ANOTHER_KIND,
    ExecutedMeanwhile,
    Removal,
    Talk,
)
from rewrite.commands.schema import cleared_by_direct_write
from rewrite.commands.write_command import (
    cluster_times,
    reads_from_the_primary,
    selection_of,
    was_executed,
    write_nothing,
)
from rewrite.plan import Dialogue, Document, PassThrough, Plan, Request, StepGenerator
from rewrite.removal import ATTEMPTS, Found, changed_repeatedly, find_one, first_of, read, remove_found
from rewrite.stages.draft import Stage

FIELDS = frozenset(
    {
        "findAndModify",
        "findandmodify",
        "query",
        "sort",
        "remove",
        "fields",
        "collation",
        "hint",
        "let",
        "new",
        "upsert",
        "writeConcern",
        "comment",
        "maxTimeMS",
        "readConcern",
    }
)
OBJECTS = ("query", "sort", "fields", "collation", "let", "writeConcern")


def rewrite_find_and_modify(request: Request) -> Plan:
    """Removes are a dialogue; the backend refuses everything else."""
    if request.namespace.is_buckets:
        return cleared_by_direct_write(request)
    if request.target is None or request.in_transaction or not _is_plain_removal(request.body):
        return PassThrough()
    query = request.body.get("query") or {}
    selection = selection_of(request, request.target, query, request.body)
    return Dialogue(partial(_remove, request, selection))


def _is_plain_removal(body: Mapping[str, Any]) -> bool:
    return (
        body.get("remove") is True
        and FIELDS.issuperset(body)
        and reads_from_the_primary(body)
        and not body.get("new")
        and not body.get("upsert")
        and all(isinstance(body.get(name) or {}, Mapping) for name in OBJECTS)
        and isinstance(body.get("hint", ""), str | Mapping)
    )


def _remove(request: Request, selection: Selection) -> StepGenerator:
    yield from selection.looked_through()
    removal = Removal(request.body.get("writeConcern"), keeps_images=True)
    if request.has_txn_number:
        value = yield from _remove_once(request, selection, removal, request.statement_id(0))
    else:
        value = yield from _remove_first(request, selection, removal, None)
        if value is None:
            # What is read next, on any member, must be at least as new as the search.
            yield from write_nothing(removal, selection)
    reply: Document = {"lastErrorObject": {"n": int(value is not None)}, "value": value}
    if "writeConcernError" in removal.acknowledged:
        reply["writeConcernError"] = removal.acknowledged["writeConcernError"]
    reply["ok"] = 1.0
    return reply | cluster_times(removal.acknowledged)


def _remove_once(
    request: Request, selection: Selection, removal: Removal, statement: int
) -> Talk[RawBSONDocument | None]:
    """As ``_remove_first``, unless the statement was executed before, or another copy of it is meanwhile."""
    if not (yield from was_executed(removal, selection, statement)):
        try:
            value = yield from _remove_first(request, selection, removal, statement)
        except ExecutedMeanwhile:
            value = None
        if value is not None or not (yield from was_executed(removal, selection, statement)):
            return value
    return (yield from _value_then(request, selection, removal, statement))


def _remove_first(
    request: Request, selection: Selection, removal: Removal, statement: int | None
) -> Talk[RawBSONDocument | None]:
    """Remove the first match and return it, projected as it was before. Raises ``ExecutedMeanwhile``."""
    sort = request.body.get("sort") or None
    for _ in range(ATTEMPTS):
        found = yield from find_one(selection, sort)
        if found is None:
            return None
        value = yield from _projected(request, selection, found)
        if value is not None and (yield from remove_found(removal, selection, found, statement)):
            return value
    raise changed_repeatedly()


def _projection(request: Request) -> list[Stage]:
    fields = request.body.get("fields")
    return [{"$project": fields}] if fields else []


def _projected(request: Request, selection: Selection, found: Found) -> Talk[RawBSONDocument | None]:
    projection = _projection(request)
    if not projection:
        return RawBSONDocument(found.seen)
    then = [*first_of(request.body.get("sort") or None), *projection]
    rows = yield from read(selection, matches(selection, found.bucket_id, then), raw=True)
    return rows[0] if rows else None


def _value_then(
    request: Request, selection: Selection, removal: Removal, statement: int
) -> Talk[RawBSONDocument | None]:
    """The measurement that this retried statement removed, from the bucket as it was before."""
    try:
        image = yield from removal.exchange(selection, NO_DOCUMENT, EMPTY_BUCKET, statement)
    except CommandError as error:
        if error.code not in EXECUTED_AS_ANOTHER_KIND:
            raise
        image = yield from removal.exchange(selection, NO_DOCUMENT, None, statement)
    if image is None:
        return None
    then = [*first_of(request.body.get("sort") or None), *_projection(request)]
    rows = yield from read(selection, matches_in_image(selection, image, then), raw=True, holds_data=True)
    return rows[0] if rows else None
