"""Determines which columns a pipeline reads, so that only these are unpacked (Q20).

This is needed where the backend's optimiser is inhibited. ``None`` means all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from bson.decimal128 import Decimal128

from rewrite.stages.draft import Draft, Stage, only
from rewrite.stages.scope import Scope

Columns: TypeAlias = frozenset[str]
Reads: TypeAlias = Callable[[Any], Columns | None]

_NONE: Columns = frozenset()


def include_needed_columns(draft: Draft, scope: Scope) -> Draft:
    """Include only the columns that are read, unless the backend's optimiser determines them."""
    if not draft.unpacks or not draft.inhibits or draft.include is not None:
        return draft
    columns = columns_read(draft.tail)
    if columns is None or not can_be_included(columns):
        return draft
    return draft._replace(include=tuple(sorted(columns)))


def can_be_included(columns: Columns) -> bool:
    """Whether the server accepts these names as columns to unpack."""
    return all(name and "." not in name and not name.startswith("$") for name in columns)


def columns_read(stages: Sequence[Stage]) -> Columns | None:
    """The top-level fields that ``stages`` may read, until one of them replaces the documents."""
    read: Columns = _NONE
    for stage in stages:
        name, argument = only(stage)
        if name in _REPLACING:
            columns = _REPLACING[name](argument)
            return None if columns is None else read | columns
        if name == "$project" and is_inclusion(argument):
            columns = _project_columns(argument)
            return None if columns is None else read | columns
        if name not in _KEEPING:
            return None
        columns = _KEEPING[name](argument)
        if columns is None:
            return None
        read |= columns
    return None


def predicate_columns(predicate: Any) -> Columns | None:
    """The top-level fields that a match predicate reads."""
    if not isinstance(predicate, dict):
        return None
    columns: set[str] = set()
    for key, operand in predicate.items():
        part: Columns | None
        if key in ("$and", "$or", "$nor"):
            part = _all(operand, predicate_columns) if isinstance(operand, list) else None
        elif key == "$expr":
            part = expression_columns(operand)
        elif key == "$comment":
            part = _NONE
        else:
            part = None if key.startswith("$") else _top(key)
        if part is None:
            return None
        columns |= part
    return frozenset(columns)


def expression_columns(expression: Any) -> Columns | None:
    """The top-level fields that an aggregation expression reads; ``None`` if it may read the whole document."""
    match expression:
        case str() if expression.startswith("$$"):
            whole = expression.split(".", maxsplit=1)[0] in ("$$ROOT", "$$CURRENT")
            return None if whole else _NONE
        case str() if expression.startswith("$"):
            return _top(expression[1:])
        case dict():
            if "$literal" in expression:
                return _NONE
            if any(key in ("$getField", "$setField", "$unsetField", "$meta") for key in expression):
                return None
            return _all(list(expression.values()), expression_columns)
        case list():
            return _all(expression, expression_columns)
        case _:
            return _NONE


def _all(values: Sequence[Any], reads: Reads) -> Columns | None:
    columns: set[str] = set()
    for value in values:
        part = reads(value)
        if part is None:
            return None
        columns |= part
    return frozenset(columns)


def _top(path: str) -> Columns:
    return frozenset({path.split(".", maxsplit=1)[0]})


def _sort_columns(argument: Any) -> Columns | None:
    if not isinstance(argument, dict) or any(isinstance(value, dict) for value in argument.values()):
        return None
    return frozenset(path.split(".", maxsplit=1)[0] for path in argument)


def _group_columns(argument: Any) -> Columns | None:
    return _all(list(argument.values()), _accumulator_columns) if isinstance(argument, dict) else None


def _accumulator_columns(argument: Any) -> Columns | None:
    if not isinstance(argument, dict):
        return expression_columns(argument)
    columns: set[str] = set()
    for operator, operand in argument.items():
        if operator in ("$accumulator", "$function"):
            return None
        part = expression_columns(operand)
        if isinstance(operand, dict) and "sortBy" in operand and part is not None:
            by = _sort_columns(operand["sortBy"])
            part = None if by is None else part | by
        if part is None:
            return None
        columns |= part
    return frozenset(columns)


def is_inclusion(argument: Any) -> bool:
    """Whether a projection names the fields that it keeps."""
    if not isinstance(argument, dict):
        return False
    return any(_keeps(value) for key, value in argument.items() if key != "_id" or len(argument) == 1)


def _keeps(value: Any) -> bool:
    """Whether a value of a projection keeps or computes its field; documents may name fields inside it."""
    if isinstance(value, dict):
        return any(key.startswith("$") or _keeps(inner) for key, inner in value.items())
    return not _is_zero(value)


def _is_zero(value: Any) -> bool:
    return value.to_decimal().is_zero() if isinstance(value, Decimal128) else value in (0, False)


def _project_columns(argument: Mapping[str, Any]) -> Columns | None:
    columns: set[str] = {"_id"} if not _is_zero(argument.get("_id", 1)) else set()
    for path, value in argument.items():
        if _is_zero(value):
            continue
        if isinstance(value, dict) and any(key in ("$slice", "$elemMatch", "$meta") for key in value):
            return None
        part = expression_columns(value)
        if part is None:
            return None
        # A computed path inside a document keeps its position among the existing fields.
        columns |= part | _top(path)
    return frozenset(columns)


def _computed_columns(argument: Any) -> Columns | None:
    """The columns that ``$addFields`` reads; a dotted path also reads its siblings, which it keeps."""
    if not isinstance(argument, dict):
        return None
    columns = expression_columns(argument)
    return None if columns is None else columns | frozenset(path.split(".", maxsplit=1)[0] for path in argument)


def _unwind_columns(argument: Any) -> Columns | None:
    path = argument.get("path") if isinstance(argument, dict) else argument
    return _top(path[1:]) if isinstance(path, str) and path.startswith("$") else None


def _no_columns(_: Any) -> Columns:
    return _NONE


def _replacement_columns(argument: Any) -> Columns | None:
    newer = argument.get("newRoot") if isinstance(argument, dict) and "newRoot" in argument else argument
    if isinstance(newer, dict) and len(newer) == 1:
        (value,) = newer.values()
        if isinstance(value, dict) and set(value) == {"$_internalFindAllValuesAtPath"}:
            return _top(str(value["$_internalFindAllValuesAtPath"]))
    return expression_columns(newer)


_KEEPING: Mapping[str, Reads] = {
    "$addFields": _computed_columns,
    "$limit": _no_columns,
    "$match": predicate_columns,
    "$set": _computed_columns,
    "$skip": _no_columns,
    "$sort": _sort_columns,
    "$unwind": _unwind_columns,
}
"""Stages that pass documents on with all their fields."""

_REPLACING: Mapping[str, Reads] = {
    "$count": _no_columns,
    "$group": _group_columns,
    "$replaceRoot": _replacement_columns,
    "$sortByCount": expression_columns,
}
"""Stages whose output contains only what they read."""
