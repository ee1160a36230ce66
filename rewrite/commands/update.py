"""``update`` of the meta field (U1-U4): executed by the backend if it can, otherwise on the buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson import ObjectId

from catalog.bson.faithful import Opaque
from catalog.bson.raw import fields_of
from catalog.errors import INVALID_OPTIONS, CommandError
from catalog.namespaces import VirtualCollection
from rewrite import bucket_reads
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import UNCHECKED, Removal, Talk
from rewrite.commands.delete import is_native_query
from rewrite.commands.fatal_names import is_fatal_to_update
from rewrite.commands.write_command import WriteCommand, WriteStatement, rewrite_write
from rewrite.plan import ClearBuckets, Document, Plan, Request
from rewrite.removal import read
from rewrite.stages.meta_fields import rename_update
from rewrite.stages.meta_paths import rename_predicate
from rewrite.stages.scope import Scope

STATEMENT_FIELDS: Final = frozenset({"q", "u", "multi", "upsert", "collation", "hint", "arrayFilters"})

PAGE: Final = 500
"""Buckets that are updated together."""


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


def _is_fatal(request: Request, target: VirtualCollection) -> bool:
    return is_fatal_to_update(target.options, request.profile)


def _is_supported(body: Mapping[str, Any]) -> bool:
    return not isinstance(body.get("let"), Opaque)


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


def _update(request: Request, writes: Removal, statement: WriteStatement, counts: dict[str, int]) -> Talk[None]:
    query, change = renamed_parts(statement.entry, statement.selection)
    if request.has_txn_number:
        raise _refused("Cannot use (or request) retryable writes with multi=true")
    yield from _update_buckets(writes, statement, query, change, counts)


def _update_buckets(
    writes: Removal, statement: WriteStatement, query: Document, change: Document, counts: dict[str, int]
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
    writes: Removal, statement: WriteStatement, query: Document, change: Document, ids: Sequence[ObjectId]
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


_UPDATE: Final = WriteCommand(
    name="update",
    statements="updates",
    counts=("n", "nModified"),
    is_well_formed=_is_well_formed,
    is_native=_is_native,
    is_fatal=_is_fatal,
    execute=_update,
    is_supported=_is_supported,
)


def rewrite_update(request: Request) -> Plan:
    """The plan of ``rewrite_write``."""
    return rewrite_write(_UPDATE, request)
