"""Computes ``$group`` by meta and ``$count`` from the headers of buckets (Q22, H4).

Buckets whose header is not sufficient are unpacked in a second branch, and the results of both branches are grouped
again. Such buckets are rare, so a guess reads headers only, and fails if one of them is not sufficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson import Binary, Int64

from rewrite.stages.draft import INHIBITS, Draft, Stage, fails_unless, only
from rewrite.stages.meta_paths import rename_constant_or_meta, rename_expression
from rewrite.stages.rows import UNKNOWN_COUNT, rows_in_bucket
from rewrite.stages.scope import Scope

DOUBT = "__untold_by_a_header"
"""Temporary field of a group: whether a header in it is not sufficient."""
NOT_MERGED = Binary(b"")
"""The least value that sorts after objects and arrays, which summaries merge (W24, W25)."""
_UNKNOWN_COUNT: dict[str, Any] = {"$and": [{"$ne": ["$control.version", 1]}, {"$lt": ["$control.count", None]}]}

MOST_PARTS = 8
"""Maximum number of names in a path that is read from headers, because the predicates on headers repeat it."""
MOST_ACCUMULATORS = 64
"""Above this number, rows are grouped: an accumulator over headers is longer than one over rows."""

_IDEMPOTENT = frozenset({"$min", "$max", "$addToSet", "$first", "$last"})
"""Accumulators whose result does not depend on how often they see the same value."""


@dataclass(frozen=True, slots=True)
class Partial:
    """One accumulator over headers: ``over_buckets``, and ``joined_by``, which combines the two branches.

    ``insufficient``: predicates on buckets whose header is not sufficient. A guess detects these by ``doubts``,
    expressions over a header, and by its result, which must be less than ``below`` or at least ``NOT_MERGED``.
    """

    over_buckets: dict[str, Any]
    joined_by: str
    insufficient: tuple[Stage, ...] = ()
    doubts: tuple[dict[str, Any], ...] = ()
    below: Any = None


def count_from_headers(draft: Draft, scope: Scope) -> Draft:
    """``$count`` from headers, as a ``$group``."""
    if not draft.tail:
        return draft
    name, field = only(draft.tail[0])
    if name != "$count" or not _is_plain_name(field) or field == "_id":
        return draft
    group: Stage = {"$group": {"_id": None, field: {"$sum": 1}}}
    grouped = group_from_headers(draft._replace(tail=(group, {"$project": {"_id": 0}}, *draft.tail[1:])), scope)
    return draft if grouped.unpacks else grouped


def group_from_headers(draft: Draft, scope: Scope) -> Draft:
    """A group by meta from headers, if these are sufficient for all or for most buckets."""
    if not draft.tail or not draft.unpacks or not scope.plain_names:
        return draft
    name, group = only(draft.tail[0])
    if name != "$group" or not isinstance(group, dict) or "_id" not in group:
        return draft
    key = rename_constant_or_meta(group["_id"], scope)
    partials = _partials(group, scope)
    if key is None or partials is None:
        return draft
    over_buckets = {"$group": {"_id": key[0]} | {field: part.over_buckets for field, part in partials.items()}}
    insufficient = {str(predicate): predicate for part in partials.values() for predicate in part.insufficient}
    if not insufficient:
        return draft.with_head(over_buckets)._replace(tail=draft.tail[1:], unpacks=False)
    if scope.may_guess and DOUBT not in partials:
        return draft.with_head(*_guess(key[0], partials))._replace(tail=draft.tail[1:], unpacks=False, guesses=True)
    if scope.in_transaction:
        return draft
    unpacked = draft._replace(inhibits=True, include=_columns(group, scope), tail=({"$group": group},))
    unpacked = unpacked.with_head({"$match": {"$or": list(insufficient.values())}})
    joined = {"$group": {"_id": "$_id"} | {field: {p.joined_by: f"${field}"} for field, p in partials.items()}}
    head = draft.with_head({"$match": {"$nor": list(insufficient.values())}}, over_buckets)
    union: Stage = {"$unionWith": {"coll": scope.buckets.collection, "pipeline": unpacked.stages(scope)}}
    return head._replace(tail=(union, joined, *draft.tail[1:]), unpacks=False)


def _guess(key: Any, partials: Mapping[str, Partial]) -> tuple[Stage, ...]:
    """The group from headers alone; fails on the server if one of them is not sufficient."""
    group: dict[str, Any] = {"_id": key} | {field: part.over_buckets for field, part in partials.items()}
    doubts = list({str(doubt): doubt for part in partials.values() for doubt in part.doubts}.values())
    conditions: list[Any] = [
        {"$or": [{"$lt": [f"${field}", part.below]}, {"$gte": [f"${field}", NOT_MERGED]}]}
        for field, part in partials.items()
        if part.below is not None
    ]
    if doubts:
        group[DOUBT] = {"$max": {"$or": doubts}}
        conditions.append({"$ne": [f"${DOUBT}", True]})
    stages: list[Stage] = [{"$group": group}, fails_unless({"$and": conditions})]
    if doubts:
        stages.append({"$project": {DOUBT: 0}})
    if key is not None:
        # Sorting checks all groups before the first one is returned, so no error occurs in a later batch.
        stages.append({"$sort": {"_id": 1}})
    # Otherwise, the optimiser could apply a later predicate before the check.
    return (*stages, INHIBITS)


def _columns(group: Mapping[str, Any], scope: Scope) -> tuple[str, ...]:
    """The columns that the key and the accumulators of such a group read."""
    columns = [] if scope.meta_field is None else [scope.meta_field]
    for argument in group.values():
        _, operand = only(argument) if isinstance(argument, dict) and len(argument) == 1 else ("", None)
        if isinstance(operand, str) and operand.startswith("$"):
            columns.append(operand[1:].split(".")[0])
    return tuple(dict.fromkeys(columns))


def _partials(group: Mapping[str, Any], scope: Scope) -> dict[str, Partial] | None:
    partials: dict[str, Partial] = {}
    if len(group) > MOST_ACCUMULATORS:
        return None
    for field, argument in group.items():
        if field == "_id":
            continue
        partial = _partial(argument, scope) if _is_plain_name(field) and isinstance(argument, dict) else None
        if partial is None:
            return None
        partials[field] = partial
    return partials


def _partial(accumulator: Mapping[str, Any], scope: Scope) -> Partial | None:
    operator, operand = only(accumulator)
    if operator == "$count" and operand == {}:
        return Partial({"$sum": rows_in_bucket(scope)}, "$sum", (UNKNOWN_COUNT,), (_UNKNOWN_COUNT,))
    # Compiled code would make an ``int`` of an ``Int64`` that ``isinstance`` has narrowed, and sums would change type.
    kind: type = type(operand)
    if operator == "$sum" and kind in (int, Int64):
        times = rows_in_bucket(scope) if operand == 1 and kind is int else None
        product = times or {"$multiply": [rows_in_bucket(scope), operand]}
        return Partial({"$sum": product}, "$sum", (UNKNOWN_COUNT,), (_UNKNOWN_COUNT,))
    if operator in _IDEMPOTENT and (moved := rename_expression(operand, scope)) is not None:
        return Partial({operator: moved[0]}, operator) if operator != "$addToSet" else None
    if operator in ("$min", "$max") and isinstance(operand, str) and operand.startswith("$"):
        return _extreme(operator, operand[1:], scope)
    return None


def _extreme(operator: str, field: str, scope: Scope) -> Partial | None:
    """The least or greatest value at a path, from the header unless that merges objects or arrays.

    The header of a path inside objects is that of its values if all parents in a bucket are objects or missing.
    """
    parts = field.split(".")
    if len(parts) > MOST_PARTS or not all(map(_is_plain_name, parts)):
        return None
    if parts[0] == scope.time_field:
        if len(parts) > 1:
            return None
        if operator == "$min" or scope.extended_range:
            return None
        return Partial({"$max": f"$control.max.{field}"}, "$max")
    low, high = f"control.min.{field}", f"control.max.{field}"
    merged = ["object", "array", "undefined"]
    if not scope.compares_like_buckets:
        merged += ["string", "symbol"]
    mixed = [_is_mixed(".".join(parts[:count])) for count in range(1, len(parts))]
    insufficient: list[Stage] = [
        {"$or": [{low: {"$type": merged}}, {high: {"$type": merged}}]},
        {low: {"$type": "null"}, high: {"$not": {"$type": "null"}}},
        *({"$expr": parent} for parent in mixed),
    ]
    # Accumulators ignore null, but a summary includes it.
    null = {"$and": [{"$lte": [f"${low}", None]}, {"$gt": [f"${high}", None]}]}
    doubts = (*mixed, *(() if operator == "$max" else (null,)))
    below: Any = {} if scope.compares_like_buckets else ""
    return Partial({operator: f"$control.{operator[1:]}.{field}"}, operator, tuple(insufficient), doubts, below)


def _is_mixed(parent: str) -> dict[str, Any]:
    """An expression over a header: whether the values at a path are not all objects, or are all missing."""
    types = [{"$type": f"$control.min.{parent}"}, {"$type": f"$control.max.{parent}"}]
    return {"$not": [{"$in": [types, [["object", "object"], ["missing", "missing"]]]}]}


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name) and not name.startswith("$") and "." not in name and "\0" not in name
