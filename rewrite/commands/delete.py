"""``delete`` on measurements: executed by the backend if it can, otherwise by changing buckets (U5, U8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from catalog.bson.faithful import Opaque
from catalog.errors import CommandError
from catalog.namespaces import TimeseriesOptions, VirtualCollection
from catalog.queries import NO_DOCUMENT
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import ExecutedMeanwhile, Removal, Talk, WholeCommandFailed
from rewrite.commands.fatal_deletes import refuse_fatal
from rewrite.commands.fatal_names import is_fatal_to_delete, relayed
from rewrite.commands.schema import cleared_by_direct_write
from rewrite.plan import Dialogue, Document, PassThrough, Plan, Request, StepGenerator
from rewrite.profile import Profile
from rewrite.removal import remove_all, remove_one
from rewrite.stages.meta_fields import meta_path
from rewrite.statements import Statements, need_rewriting, statement_of

FIELDS = frozenset(
    {
        "delete",
        "deletes",
        "ordered",
        "writeConcern",
        "let",
        "comment",
        "maxTimeMS",
        "bypassDocumentValidation",
        "readConcern",
    }
)
STATEMENT_FIELDS = frozenset({"q", "limit", "collation", "hint"})
COMMON_FIELDS = ("maxTimeMS", "comment")


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


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """One entry of ``deletes``, well formed."""

    index: int
    selection: Selection
    single: bool


def rewrite_delete(request: Request) -> Plan:
    """The unchanged command if the backend can execute all of it, or refuses it; otherwise a dialogue.

    Raises ``CommandError`` 115 for what only the backend could execute, and would not survive (H8, H17).
    """
    if request.namespace.is_buckets:
        return cleared_by_direct_write(request)
    target = request.target
    if target is None:
        return PassThrough()
    deletes = request.body.get("deletes", ())
    if request.in_transaction or not _is_well_formed_command(request.body):
        refuse_fatal(request, target, deletes)
        return _as_it_is(request, target)
    if isinstance(deletes, Statements):
        return Dialogue(partial(_delete_in_pieces, request, target, deletes))
    if not all(_is_well_formed(entry) for entry in deletes or [None]) or all(
        _is_native(request, target, entry) for entry in deletes
    ):
        return _as_it_is(request, target)
    return Dialogue(partial(_delete, request, target, deletes))


def _as_it_is(request: Request, target: VirtualCollection) -> PassThrough:
    return relayed(request, target, fatal=is_fatal_to_delete(target.options))


def _is_well_formed_command(body: Mapping[str, Any]) -> bool:
    return (
        FIELDS.issuperset(body)
        and isinstance(body.get("deletes"), list | Statements)
        and all(isinstance(body.get(name, {}), Mapping) for name in ("let", "writeConcern"))
        and reads_from_the_primary(body)
    )


def _is_native(request: Request, target: VirtualCollection, entry: Mapping[str, Any]) -> bool:
    single = bool(entry["limit"])
    return deletes_natively(request.profile, entry["q"], single=single, options=target.options)


def _delete_in_pieces(request: Request, target: VirtualCollection, deletes: Statements) -> StepGenerator:
    """As ``rewrite_delete``, with each statement decoded when it is needed."""
    needed = yield from need_rewriting(deletes, _is_well_formed, lambda entry: _is_native(request, target, entry))
    if not needed:
        return _as_it_is(request, target)
    return (yield from _delete(request, target, map(statement_of, deletes)))


def reads_from_the_primary(body: Mapping[str, Any]) -> bool:
    """Whether the read concern, which drivers add in sessions, requires no more than a write."""
    concern = body.get("readConcern", {})
    return isinstance(concern, Mapping) and concern.get("level", "local") == "local"


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


def selection_of(
    request: Request, target: VirtualCollection, query: Mapping[str, Any], options: Mapping[str, Any]
) -> Selection:
    """The selection of a statement with these options."""
    return Selection(
        target,
        request.profile,
        query,
        collation=options.get("collation") or None,
        hint=options.get("hint"),
        let=request.body.get("let"),
        common={name: request.body[name] for name in COMMON_FIELDS if name in request.body},
    )


def _delete(request: Request, target: VirtualCollection, deletes: Iterable[Mapping[str, Any]]) -> StepGenerator:
    removal = Removal(request.body.get("writeConcern"))
    # The backend checks the command as a whole, before anything is removed.
    yield from removal.delete(nothing_of(request, target), [NO_DOCUMENT])
    removed = 0
    errors: list[Document] = []
    for index, entry in enumerate(deletes):
        statement = DeleteStatement(index, selection_of(request, target, entry["q"], entry), bool(entry["limit"]))
        try:
            removed += yield from _delete_one(request, removal, statement)
        except WholeCommandFailed:
            raise
        except CommandError as error:
            errors.append(error.write_error(statement.index))
            if request.body.get("ordered", True):
                break
    return write_reply({"n": removed}, errors, removal.acknowledged)


def write_reply(counts: Mapping[str, int], errors: Sequence[Document], acknowledged: Mapping[str, Any]) -> Document:
    """A write command's reply in the server's order of fields (W90)."""
    first, *others = counts
    reply: Document = {first: counts[first]}
    reply |= {name: acknowledged[name] for name in ("electionId", "opTime") if name in acknowledged}
    if errors:
        reply["writeErrors"] = list(errors)
    reply |= {name: counts[name] for name in others}
    if "writeConcernError" in acknowledged:
        reply["writeConcernError"] = acknowledged["writeConcernError"]
    reply["ok"] = 1.0
    return reply | {name: acknowledged[name] for name in ("$clusterTime", "operationTime") if name in acknowledged}


def _delete_one(request: Request, removal: Removal, statement: DeleteStatement) -> Talk[int]:
    yield from statement.selection.looked_through()
    if not statement.single:
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


def nothing_of(request: Request, target: VirtualCollection) -> Selection:
    """An empty selection, with the options that all steps of the command share."""
    return _nothing(selection_of(request, target, {}, {}))


def _nothing(selection: Selection) -> Selection:
    return Selection(selection.target, selection.profile, {}, common=selection.common)


def was_executed(removal: Removal, selection: Selection, statement: int) -> Talk[bool]:
    """Whether the backend has recorded this retryable statement; it then deletes nothing and reports it (W103)."""
    return bool((yield from removal.delete(_nothing(selection), [NO_DOCUMENT], statement)))
