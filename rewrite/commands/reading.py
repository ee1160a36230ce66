"""Common code of the reading commands: from the client's command to one ``aggregate`` on the buckets (Q1).

A translator returns ``None`` if it is not certain. The command then goes to the collection's view unchanged, and the
client gets the backend's reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from catalog.namespaces import VirtualCollection
from rewrite.indexes import bucket_hint
from rewrite.plan import Alternative, Request, Step
from rewrite.stages.draft import Stage, keys_inside
from rewrite.stages.pipeline import guess_pipeline, rewrite_pipeline
from rewrite.stages.scope import Scope

BodyTranslator: TypeAlias = Callable[[Mapping[str, Any], VirtualCollection, Request], dict[str, Any] | None]
"""A command's body → the body of an ``aggregate`` on the bucket collection."""

COMMON_OPTIONS = ("maxTimeMS", "readConcern", "comment", "allowDiskUse", "let")
"""Options with the same meaning in ``aggregate`` as in other commands."""


FASTER_ON_VIEW = frozenset({"distinct"})
"""Commands that can have a plan of their own for clients that may not read the buckets."""


def reads_buckets(request: Request) -> bool:
    """Whether this request may be answered from the bucket collection itself."""
    if request.target is None or not request.reads_buckets:
        return False
    return request.profile.has_native_timeseries and request.profile.uses_buckets


def scope_of(body: Mapping[str, Any], target: VirtualCollection, request: Request) -> Scope:
    """What the rules may know about this command."""
    return Scope.of(
        target,
        request.profile,
        body.get("collation"),
        in_transaction=request.in_transaction,
        let=body.get("let"),
    )


def on_buckets(
    body: Mapping[str, Any],
    pipeline: Sequence[Stage],
    target: VirtualCollection,
    request: Request,
    *,
    batch_size: Any = None,
    hint: Any = None,
) -> dict[str, Any]:
    """An ``aggregate`` on the buckets that runs ``pipeline`` on the measurements, with ``body``'s options."""
    stages = rewrite_pipeline(pipeline, scope_of(body, target, request))
    return aggregate_of_buckets(body, stages, target, batch_size=batch_size, hint=hint)


def aggregate_of_buckets(
    body: Mapping[str, Any],
    stages: Sequence[Stage],
    target: VirtualCollection,
    *,
    batch_size: Any = None,
    hint: Any = None,
) -> dict[str, Any]:
    """An ``aggregate`` that runs ``stages`` on the buckets, with ``body``'s options."""
    command: dict[str, Any] = {
        "aggregate": target.buckets.collection,
        "pipeline": stages,
        "cursor": {} if batch_size is None else {"batchSize": batch_size},
    }
    wanted_hint = body.get("hint") if hint is None else hint
    if wanted_hint is not None and wanted_hint != {}:
        command["hint"] = bucket_hint(wanted_hint, target.options)
    if body.get("collation"):
        command["collation"] = body["collation"]
    for option in COMMON_OPTIONS:
        if option in body:
            command[option] = body[option]
    return command


def step_or_guess(
    request: Request,
    pipeline: Sequence[Stage],
    target: VirtualCollection,
    on_stages: Callable[[list[Stage]], dict[str, Any]],
) -> tuple[Step, Alternative | None]:
    """The step that runs ``pipeline``, a guess if there is one (see ``Scope.may_guess``).

    ``on_stages`` makes the body of a command from stages on the buckets. There is no guess if the first batch is empty,
    because its error would only occur in a later batch.
    """
    body, database = request.body, request.namespace.database
    scope = scope_of(body, target, request)
    cursor = body.get("cursor") or {}

    def sure() -> Step:
        return Step(database, command(rewrite_pipeline(pipeline, scope)))

    def command(stages: list[Stage]) -> dict[str, Any]:
        return of_this_collection(on_stages(stages), target, request)

    if body.get("explain") or not isinstance(cursor, dict) or not whole_number(cursor.get("batchSize", 1)):
        return sure(), None
    stages, is_guess = guess_pipeline(pipeline, scope)
    return Step(database, command(stages)), sure if is_guess else None


def of_this_collection(body: dict[str, Any], target: VirtualCollection, request: Request) -> dict[str, Any]:
    """The read of buckets; it fails (``UUID_MISMATCH``) if their collection has been dropped or made again.

    Its fields may be others then, so that the read would be wrong. In a transaction, an error would abort it.
    """
    if request.in_transaction or body.get("explain"):
        return body
    return {**body, **request.profile.uuid_of(target)}


def asks_for_text(query: Mapping[str, Any]) -> bool:
    """Whether a query has ``$text``, which each command refuses with another error on a view (Q5)."""
    return "$text" in keys_inside(query)


def whole_number(value: Any) -> int | None:
    """A non-negative integer, as drivers and shells send it, or ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) and value < 2**63 else None


def cursor_reply_fields(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The further fields of a cursor reply: cluster and operation times."""
    return {name: value for name, value in reply.items() if name not in ("cursor", "ok")}
