"""Renames the user's meta field to its stored name ``meta``: in paths, match predicates and expressions (Q10).

Every function returns ``None`` if its argument does not depend on the meta field alone, or is not recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewrite.stages.scope import Scope

MOVABLE_OPERATORS = frozenset(
    {
        "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type", "$regex", "$options",
        "$not", "$elemMatch", "$all", "$size", "$mod", "$bitsAllClear", "$bitsAllSet", "$bitsAnyClear",
        "$bitsAnySet", "$geoWithin", "$geoIntersects",
    }
)  # fmt: skip
"""Field operators whose meaning does not depend on their position in the pipeline."""

_UNMOVABLE_EXPRESSIONS = frozenset(
    {"$getField", "$setField", "$unsetField", "$meta", "$rand", "$sampleRate", "$function", "$accumulator", "$where"}
)
_DOCUMENT_VARIABLES = ("$$ROOT", "$$CURRENT")


def rename_path(path: str, scope: Scope) -> str | None:
    """``m.a`` → ``meta.a``; ``None`` for a path outside the meta field."""
    if scope.meta_field is None:
        return None
    first, dot, rest = path.partition(".")
    return f"meta{dot}{rest}" if first == scope.meta_field else None


def is_measurement_path(key: str, scope: Scope) -> bool:
    """Whether a key of a predicate names a measurement field other than time."""
    return not key.startswith("$") and key.split(".", maxsplit=1)[0] not in (scope.time_field, scope.meta_field)


def rename_predicate(predicate: Mapping[str, Any], scope: Scope) -> dict[str, Any] | None:
    """A ``$match`` predicate on ``meta``; ``None`` if any part of it is about another field."""
    renamed: dict[str, Any] = {}
    for key, operand in predicate.items():
        if key in ("$and", "$or", "$nor"):
            if not isinstance(operand, list) or not operand:
                return None
            arms = [rename_predicate(arm, scope) if isinstance(arm, dict) else None for arm in operand]
            if any(arm is None for arm in arms):
                return None
            renamed[key] = arms
        elif key == "$expr":
            moved = rename_expression(operand, scope)
            if moved is None:
                return None
            renamed[key] = moved[0]
        else:
            path = None if key.startswith("$") else rename_path(key, scope)
            if path is None or not _is_movable(operand):
                return None
            renamed[path] = operand
    return renamed or None


def _is_movable(operand: Any) -> bool:
    if not isinstance(operand, dict):
        return True
    if not any(isinstance(key, str) and key.startswith("$") for key in operand):
        return True
    for operator, argument in operand.items():
        if operator not in MOVABLE_OPERATORS:
            return False
        if operator in ("$not", "$elemMatch") and not _is_movable_inside(argument):
            return False
    return True


def _is_movable_inside(argument: Any) -> bool:
    """Whether operands of ``$not`` and ``$elemMatch`` may be moved; their paths are relative and not renamed."""
    match argument:
        case dict():
            return all(
                (key in MOVABLE_OPERATORS or not key.startswith("$")) and _is_movable_inside(value)
                for key, value in argument.items()
            )
        case list():
            return all(_is_movable_inside(value) for value in argument)
        case _:
            return True


def rename_expression(expression: Any, scope: Scope) -> tuple[Any] | None:
    """An expression that reads the meta field and no other, renamed, in a 1-tuple; otherwise ``None``."""
    uses: list[str] = []
    renamed = _rename(expression, scope, uses)
    return renamed if renamed is not None and uses else None


def rename_constant_or_meta(expression: Any, scope: Scope) -> tuple[Any] | None:
    """As ``rename_expression``, but also for expressions that read no field."""
    return _rename(expression, scope, [])


def _rename(expression: Any, scope: Scope, uses: list[str]) -> tuple[Any] | None:
    match expression:
        case str():
            return _rename_string(expression, scope, uses)
        case dict():
            if "$literal" in expression or "$const" in expression:
                return (expression,)
            if any(key in _UNMOVABLE_EXPRESSIONS for key in expression) or _binds_current(expression):
                return None
            document: dict[str, Any] = {}
            for key, value in expression.items():
                renamed = _rename(value, scope, uses)
                if renamed is None:
                    return None
                document[key] = renamed[0]
            return (document,)
        case list():
            elements = []
            for element in expression:
                renamed = _rename(element, scope, uses)
                if renamed is None:
                    return None
                elements.append(renamed[0])
            return (elements,)
        case _:
            return (expression,)


def _binds_current(argument: Mapping[str, Any]) -> bool:
    """Whether this is an argument of ``$let``, ``$map`` … that redefines what paths without a variable belong to."""
    variables = argument.get("vars")
    return argument.get("as") == "CURRENT" or (isinstance(variables, dict) and "CURRENT" in variables)


def _rename_string(text: str, scope: Scope, uses: list[str]) -> tuple[str] | None:
    if text.startswith("$$"):
        return None if text.split(".", maxsplit=1)[0] in _DOCUMENT_VARIABLES else (text,)
    if not text.startswith("$"):
        return (text,)
    path = rename_path(text[1:], scope)
    if path is None:
        return None
    uses.append(path)
    return (f"${path}",)
