"""``delete`` on measurements: executed by the backend if it can, otherwise by changing buckets (U5, U8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from catalog.bson.faithful import Opaque
from catalog.errors import CommandError
from catalog.namespaces import TimeseriesOptions, VirtualCollection
from rewrite.bucket_writes import ExecutedMeanwhile, Removal, Talk
from rewrite.commands.fatal_deletes import refuse_fatal
from rewrite.commands.fatal_names import is_fatal_to_delete
from rewrite.commands.write_command import WriteCommand, WriteStatement, rewrite_write, was_executed
from rewrite.plan import Plan, Request
from rewrite.profile import Profile
from rewrite.removal import remove_all, remove_one
from rewrite.stages.meta_fields import meta_path

STATEMENT_FIELDS: Final = frozenset({"q", "limit", "collation", "hint"})


def deletes_natively(profile: Profile, query: Mapping[str, Any], *, single: bool, options: TimeseriesOptions) -> bool:
    """Whether the backend deletes these measurements correctly.

    Before 5.0.5 it supports no predicate (V1), and then those on the meta field alone, unless it mistakes an object in
    an operand for a query (U2), or does not survive (H17). From 7.0 it accepts any, but misses measurements (H9).
    """
    if profile.version < (5, 0, 5) or single or isinstance(query, Opaque) or is_fatal_to_delete(options):
        return False
    return is_native_query(query, options)


def is_native_query(query: Mapping[str, Any], options: TimeseriesOptions) -> bool:
    """Whether 6.0 accepts the query as one on the meta field and interprets it correctly (U1.4, U2)."""
    return all(_is_native_condition(key, operand, options) for key, operand in query.items())


def _is_native_condition(key: str, operand: Any, options: TimeseriesOptions) -> bool:
    if key in ("$and", "$or", "$nor"):
        arms = operand if isinstance(operand, list) else [None]
        return all(isinstance(arm, Mapping) and is_native_query(arm, options) for arm in arms)
    if key.startswith("$") or meta_path(key, options) is None:
        return False
    return not _has_objects_in_arrays(operand)


def _has_objects_in_arrays(operand: Any, *, inside: bool = False) -> bool:
    match operand:
        case Mapping():
            return inside or any(_has_objects_in_arrays(value) for value in operand.values())
        case list():
            return any(_has_objects_in_arrays(value, inside=True) for value in operand)
        case _:
            return False


def _is_well_formed(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and STATEMENT_FIELDS.issuperset(entry)
        and isinstance(entry.get("q"), Mapping)
        and not isinstance(entry.get("limit"), bool)
        and entry.get("limit") in (0, 1)
        and isinstance(entry.get("collation", {}), Mapping)
        and isinstance(entry.get("hint", ""), str | Mapping)
    )


def _is_native(request: Request, target: VirtualCollection, entry: Mapping[str, Any]) -> bool:
    single = bool(entry["limit"])
    return deletes_natively(request.profile, entry["q"], single=single, options=target.options)


def _is_fatal(request: Request, target: VirtualCollection) -> bool:
    return is_fatal_to_delete(target.options)


def _delete(request: Request, removal: Removal, statement: WriteStatement, counts: dict[str, int]) -> Talk[None]:
    counts["n"] += yield from _delete_one(request, removal, statement)


def _delete_one(request: Request, removal: Removal, statement: WriteStatement) -> Talk[int]:
    yield from statement.selection.looked_through()
    if not statement.entry["limit"]:
        if request.has_txn_number:
            raise CommandError(72, "Cannot use (or request) retryable writes with limit=0")
        return (yield from remove_all(removal, statement.selection))
    if not request.has_txn_number:
        return int((yield from remove_one(removal, statement.selection)))
    recorded = request.statement_id(statement.index)
    if (yield from was_executed(removal, statement.selection, recorded)):
        return 1
    try:
        is_removed = yield from remove_one(removal, statement.selection, recorded)
    except ExecutedMeanwhile:
        return 1
    # Another copy of the command may have removed the only match meanwhile.
    return int(is_removed or (yield from was_executed(removal, statement.selection, recorded)))


_DELETE: Final = WriteCommand(
    name="delete",
    statements="deletes",
    counts=("n",),
    is_well_formed=_is_well_formed,
    is_native=_is_native,
    is_fatal=_is_fatal,
    execute=_delete,
    refuse_fatal=refuse_fatal,
)


def rewrite_delete(request: Request) -> Plan:
    """The plan of ``rewrite_write``."""
    return rewrite_write(_DELETE, request)
