"""What ``delete`` and ``update`` share: which plan a command gets, its statements one by one, and its reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.queries import NO_DOCUMENT
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import Removal, Talk, WholeCommandFailed
from rewrite.commands.fatal_names import relayed
from rewrite.commands.schema import cleared_by_direct_write
from rewrite.plan import Dialogue, Document, PassThrough, Plan, Request, StepGenerator
from rewrite.statements import Statements, need_rewriting, statement_of

_COMMON_FIELDS: Final = ("maxTimeMS", "comment")
_SHARED_FIELDS: Final = frozenset(
    {*_COMMON_FIELDS, "ordered", "writeConcern", "let", "bypassDocumentValidation", "readConcern"}
)


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """A well-formed statement with its place in the command."""

    index: int
    selection: Selection
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCommand:
    """What differs from one write command to another."""

    name: str
    statements: str
    """The field that holds the statements."""
    counts: tuple[str, ...]
    """The counts of a reply, in the server's order."""
    is_well_formed: Callable[[Any], bool]
    """Whether a statement is well formed and supported."""
    is_native: Callable[[Request, VirtualCollection, Mapping[str, Any]], bool]
    """Whether the backend executes or refuses a statement correctly."""
    is_fatal: Callable[[Request, VirtualCollection], bool]
    """Whether the backend would not survive any statement (H17)."""
    execute: Callable[[Request, Removal, WriteStatement, dict[str, int]], Talk[None]]
    """Executes a statement and adds to the counts."""
    is_supported: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Whether a command whose fields are well formed is supported."""
    refuse_fatal: Callable[[Request, VirtualCollection, Any], None] = lambda *_: None
    """Raises ``CommandError`` 115 for statements that must not be relayed."""


def rewrite_write(command: WriteCommand, request: Request) -> Plan:
    """The unchanged command if the backend can execute all of it, or refuses it; otherwise a dialogue.

    Raises ``CommandError`` 115 for what only the backend could execute, and would not survive (H8, H17).
    """
    if request.namespace.is_buckets:
        return cleared_by_direct_write(request)
    target = request.target
    if target is None:
        return PassThrough()
    statements = request.body.get(command.statements, ())
    if request.in_transaction or not _is_well_formed(command, request.body):
        command.refuse_fatal(request, target, statements)
        return _as_it_is(command, request, target)
    if isinstance(statements, Statements):
        return Dialogue(partial(_write_in_pieces, command, request, target, statements))
    if not all(command.is_well_formed(entry) for entry in statements or [None]) or all(
        command.is_native(request, target, entry) for entry in statements
    ):
        return _as_it_is(command, request, target)
    return Dialogue(partial(_write, command, request, target, statements))


def _as_it_is(command: WriteCommand, request: Request, target: VirtualCollection) -> PassThrough:
    return relayed(request, target, fatal=command.is_fatal(request, target))


def _is_well_formed(command: WriteCommand, body: Mapping[str, Any]) -> bool:
    return (
        (_SHARED_FIELDS | {command.name, command.statements}).issuperset(body)
        and isinstance(body.get(command.statements), list | Statements)
        and all(isinstance(body.get(name, {}), Mapping) for name in ("let", "writeConcern"))
        and reads_from_the_primary(body)
        and command.is_supported(body)
    )


def reads_from_the_primary(body: Mapping[str, Any]) -> bool:
    """Whether the read concern, which drivers add in sessions, requires no more than a write."""
    concern = body.get("readConcern", {})
    return isinstance(concern, Mapping) and concern.get("level", "local") == "local"


def _write_in_pieces(
    command: WriteCommand, request: Request, target: VirtualCollection, statements: Statements
) -> StepGenerator:
    """As ``rewrite_write``, with each statement decoded when it is needed."""
    is_native = partial(command.is_native, request, target)
    needed = yield from need_rewriting(statements, command.is_well_formed, is_native)
    if not needed:
        return _as_it_is(command, request, target)
    return (yield from _write(command, request, target, map(statement_of, statements)))


def _write(
    command: WriteCommand, request: Request, target: VirtualCollection, entries: Iterable[Mapping[str, Any]]
) -> StepGenerator:
    writes = Removal(request.body.get("writeConcern"))
    # The backend checks the command as a whole, before anything is changed.
    yield from write_nothing(writes, selection_of(request, target, {}, {}))
    counts = dict.fromkeys(command.counts, 0)
    errors: list[Document] = []
    for index, entry in enumerate(entries):
        statement = WriteStatement(index, selection_of(request, target, entry["q"], entry), entry)
        try:
            yield from command.execute(request, writes, statement, counts)
        except WholeCommandFailed:
            raise
        except CommandError as error:
            errors.append(error.write_error(index))
            if request.body.get("ordered", True):
                break
    return _reply(counts, errors, writes.acknowledged)


def _reply(counts: Mapping[str, int], errors: Sequence[Document], acknowledged: Mapping[str, Any]) -> Document:
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
    return reply | cluster_times(acknowledged)


def cluster_times(acknowledged: Mapping[str, Any]) -> Document:
    """The last fields of a reply, if the backend has told them."""
    return {name: acknowledged[name] for name in ("$clusterTime", "operationTime") if name in acknowledged}


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
        common={name: request.body[name] for name in _COMMON_FIELDS if name in request.body},
    )


def write_nothing(writes: Removal, selection: Selection, statement: int | None = None) -> Talk[int]:
    """A delete that matches nothing, with the options that all steps of the command share.

    The backend checks these, waits for the write concern, and says what time it is. Returns 1 if it has recorded this
    retryable ``statement`` (W103).
    """
    nothing = Selection(selection.target, selection.profile, {}, common=selection.common)
    return (yield from writes.delete(nothing, [NO_DOCUMENT], statement))


def was_executed(writes: Removal, selection: Selection, statement: int) -> Talk[bool]:
    """Whether the backend has recorded this retryable statement."""
    return bool((yield from write_nothing(writes, selection, statement)))
