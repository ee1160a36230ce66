"""``update`` of the meta field (U1-U4): executed by the backend if it can, otherwise on the buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bson import ObjectId

from catalog.bson.faithful import Opaque
from catalog.bson.raw import fields_of
from catalog.errors import INVALID_OPTIONS, CommandError
from catalog.namespaces import VirtualCollection
from catalog.queries import NO_DOCUMENT
from rewrite import bucket_reads
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import UNCHECKED, Removal, Talk, WholeCommandFailed
from rewrite.commands.delete import (
    is_native_query,
    nothing_of,
    reads_from_the_primary,
    selection_of,
    write_reply,
)
from rewrite.commands.fatal_names import is_fatal_to_update, relayed
from rewrite.commands.schema import cleared_by_direct_write
from rewrite.plan import ClearBuckets, Dialogue, Document, PassThrough, Plan, Request, StepGenerator
from rewrite.removal import read
from rewrite.stages.meta_fields import rename_update
from rewrite.stages.meta_paths import rename_predicate
from rewrite.stages.scope import Scope
from rewrite.statements import Statements, need_rewriting, statement_of

FIELDS = frozenset(
    {
        "update",
        "updates",
        "ordered",
        "writeConcern",
        "let",
        "comment",
        "maxTimeMS",
        "bypassDocumentValidation",
        "readConcern",
    }
)
STATEMENT_FIELDS = frozenset({"q", "u", "multi", "upsert", "collation", "hint", "arrayFilters"})

PAGE = 500
"""Buckets that are updated together."""


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """One entry of ``updates``, well formed."""

    index: int
    selection: Selection
    entry: Mapping[str, Any]


def rewrite_update(request: Request) -> Plan:
    """The unchanged command, or a dialogue if the backend would misinterpret a query (U2, V1) or not survive (H17).

    Raises ``CommandError`` 115 for what only the backend could execute, and would not survive.
    """
    if request.namespace.is_buckets:
        return cleared_by_direct_write(request)
    target = request.target
    if target is None:
        return PassThrough()
    updates = request.body.get("updates", ())
    if request.in_transaction or not _is_well_formed_command(request.body):
        return _as_it_is(request, target)
    if isinstance(updates, Statements):
        return Dialogue(partial(_update_in_pieces, request, target, updates))
    if not all(_is_well_formed(entry) for entry in updates or [None]) or all(
        _is_native(request, target, entry) for entry in updates
    ):
        return _as_it_is(request, target)
    return Dialogue(partial(_update, request, target, updates))


def _as_it_is(request: Request, target: VirtualCollection) -> PassThrough:
    return relayed(request, target, fatal=is_fatal_to_update(target.options, request.profile))


def _update_in_pieces(request: Request, target: VirtualCollection, updates: Statements) -> StepGenerator:
    """As ``rewrite_update``, with each statement decoded when it is needed."""
    needed = yield from need_rewriting(updates, _is_well_formed, lambda entry: _is_native(request, target, entry))
    if not needed:
        return _as_it_is(request, target)
    return (yield from _update(request, target, map(statement_of, updates)))


def _is_native(request: Request, target: VirtualCollection, entry: Mapping[str, Any]) -> bool:
    """Whether the backend executes or refuses the update correctly, and survives it (H17).

    Before 5.0.5 it updates nothing (V1). Later it is wrong only if a query is on the meta field alone, but an object in
    one of its operands looks like a query (U2).
    """
    query = entry["q"]
    if request.profile.version < (5, 0, 5) or is_fatal_to_update(target.options, request.profile):
        return False
    if is_native_query(query, target.options):
        return True
    return rename_predicate(query, Scope.of(target, request.profile)) is None


def _is_well_formed_command(body: Mapping[str, Any]) -> bool:
    return (
        FIELDS.issuperset(body)
        and isinstance(body.get("updates"), list | Statements)
        and not isinstance(body.get("let"), Opaque)
        and all(isinstance(body.get(name, {}), Mapping) for name in ("let", "writeConcern"))
        and reads_from_the_primary(body)
    )


def _is_well_formed(entry: Any) -> bool:
    """Whether the statement is well formed and supported."""
    return (
        isinstance(entry, Mapping)
        and not any(isinstance(value, Opaque) for value in entry.values())
        and STATEMENT_FIELDS.issuperset(entry)
        and isinstance(entry.get("q"), Mapping)
        and isinstance(entry.get("u"), Mapping | list)
        and all(isinstance(entry.get(name, False), bool) for name in ("multi", "upsert"))
        and isinstance(entry.get("collation", {}), Mapping)
        and isinstance(entry.get("hint", ""), str | Mapping)
        and isinstance(entry.get("arrayFilters", []), list)
    )


def renamed_parts(statement: Mapping[str, Any], selection: Selection) -> tuple[Document, Document]:
    """Query and update on ``meta``. Raises ``CommandError`` 72 in the order of U1."""
    options = selection.target.options
    meta = options.meta_field
    if meta is None:
        raise _refused("Cannot perform an update on a time-series collection that does not have a metaField")
    if not statement.get("multi"):
        raise _refused("Cannot perform a non-multi update on a time-series collection")
    if statement.get("upsert"):
        raise _refused("Cannot perform an upsert on a time-series collection")
    query = {} if not selection.query else rename_predicate(selection.query, selection.scope)
    for operator in ("$expr", "$where"):
        if operator in selection.query:
            raise _refused(f"Cannot use {operator} when performing an update or delete on a time-series collection")
    if query is None:
        raise _refused(
            "Cannot perform an update or delete on a time-series collection when querying on a field that is not "
            f"the metaField '{meta}'"
        )
    change = statement["u"]
    if isinstance(change, list):
        raise _refused("Cannot perform an update on a time-series collection using a pipeline update")
    if not next(iter(change), "").startswith("$"):
        raise _refused("Cannot perform an update on a time-series collection using a replacement document")
    renamed = rename_update(change, options)
    if renamed is None:
        raise _refused(
            "Cannot perform an update on a time-series collection which updates a field that is not the "
            f"metaField '{meta}'"
        )
    return query, renamed


def _refused(message: str) -> CommandError:
    return CommandError(INVALID_OPTIONS, message)


def _update(request: Request, target: VirtualCollection, updates: Iterable[Mapping[str, Any]]) -> StepGenerator:
    writes = Removal(request.body.get("writeConcern"))
    # The backend checks the command as a whole, before anything is changed.
    yield from writes.delete(nothing_of(request, target), [NO_DOCUMENT])
    counts = {"n": 0, "nModified": 0}
    errors: list[Document] = []
    for index, entry in enumerate(updates):
        statement = UpdateStatement(index, selection_of(request, target, entry["q"], entry), entry)
        try:
            query, change = renamed_parts(statement.entry, statement.selection)
            if request.has_txn_number:
                raise _refused("Cannot use (or request) retryable writes with multi=true")
            yield from _update_buckets(writes, statement, query, change, counts)
        except WholeCommandFailed:
            raise
        except CommandError as error:
            errors.append(error.write_error(statement.index))
            if request.body.get("ordered", True):
                break
    return write_reply(counts, errors, writes.acknowledged)


def _update_buckets(
    writes: Removal, statement: UpdateStatement, query: Document, change: Document, counts: dict[str, int]
) -> Talk[None]:
    """Update all matching buckets; adds the measurements in matched and changed buckets to ``counts``."""
    selection = statement.selection
    after: ObjectId | None = None
    while True:
        page = yield from read(selection, bucket_reads.metas(selection, query, after, PAGE), raw=True)
        before = {ObjectId(fields_of(bytes(each.raw))[b"_id"][1:]): bytes(each.raw) for each in page}
        if not before:
            return
        ids = list(before)
        after = ids[-1]
        counted = yield from read(selection, bucket_reads.row_counts(selection, ids))
        rows = {each["_id"]: each["rows"] for each in counted}
        cleared = ClearBuckets(selection.target.namespace, tuple(bucket.binary for bucket in ids))
        yield cleared
        yield from _update_page(writes, statement, query, change, ids)
        yield cleared
        now = yield from read(selection, bucket_reads.metas(selection, {"_id": {"$in": ids}}, None, PAGE), raw=True)
        unchanged = {bytes(each.raw) for each in now}
        counts["n"] += sum(rows.values())
        counts["nModified"] += sum(rows.get(each, 0) for each, meta in before.items() if meta not in unchanged)


def _update_page(
    writes: Removal, statement: UpdateStatement, query: Document, change: Document, ids: Sequence[ObjectId]
) -> Talk[None]:
    selection = statement.selection
    update: Document = {"q": {"$and": [{"_id": {"$in": list(ids)}}, query]}, "u": change, "multi": True}
    if selection.collation:
        update["collation"] = selection.collation
    if statement.entry.get("arrayFilters"):
        update["arrayFilters"] = statement.entry["arrayFilters"]
    body: Document = {"update": selection.target.buckets.collection, "updates": [update], **UNCHECKED}
    if selection.let:
        body["let"] = selection.let
    yield from writes.write(selection, body, holds_data=False)
