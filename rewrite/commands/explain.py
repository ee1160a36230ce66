"""``explain`` of reads: explains the aggregate that is correct for all stored data (Q6)."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite.commands.aggregate import refuse_fatal_hint, translate_aggregate
from rewrite.commands.count import translate_count
from rewrite.commands.distinct import translate_distinct
from rewrite.commands.fatal_deletes import refuse_fatal
from rewrite.commands.fatal_names import refuse_fatal_explain
from rewrite.commands.find import translate_find
from rewrite.commands.reading import FASTER_ON_VIEW, BodyTranslator, reads_buckets
from rewrite.plan import PassThrough, Plan, Request, Single, Step

TRANSLATORS: Mapping[str, BodyTranslator] = {
    "aggregate": translate_aggregate,
    "count": translate_count,
    "distinct": translate_distinct,
    "find": translate_find,
}


def rewrite_explain(request: Request) -> Plan:
    """Rewrites the explained command as if it were executed; others are left to the backend (C23).

    Raises ``CommandError`` for what ends a server also if it is only explained (H8, H11, H17).
    """
    explained = request.body.get("explain")
    if request.target is None or not isinstance(explained, Mapping) or not explained:
        return PassThrough()
    name = next(iter(explained))
    refuse_fatal_explain(request, request.target, name)
    if name == "delete":
        refuse_fatal(request, request.target, explained.get("deletes"))
    elif name == "aggregate":
        refuse_fatal_hint(explained, request.target)
    translate = TRANSLATORS.get(name) if reads_buckets(request) or name in FASTER_ON_VIEW else None
    body = translate(explained, request.target, request) if translate else None
    if body is None:
        return PassThrough()
    return Single(Step(request.namespace.database, {**request.body, "explain": body}))
