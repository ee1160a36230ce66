"""Recognises expressions that have the same value for every document of a command (Q19)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson import Decimal128
from bson.datetime_ms import DatetimeMS

from rewrite.stages.scope import Scope
from rewrite.stages.time_bounds import millis

MOST_PARTS = 64
"""Maximum number of values inside a constant expression, because bounds repeat it."""

_FOLDED = frozenset(
    {
        "$abs", "$add", "$ceil", "$concat", "$dateAdd", "$dateFromParts", "$dateFromString", "$dateSubtract",
        "$dateTrunc", "$divide", "$floor", "$literal", "$mod", "$multiply", "$round", "$subtract", "$toDate",
        "$toDecimal", "$toDouble", "$toInt", "$toLong", "$trunc",
    }
)  # fmt: skip
"""Operators that the server evaluates before it reads the first document, including their errors, if their operands are
constant. Other operators could fail for a bucket none of whose rows is read."""

_DAY_MS = 86_400_000
_UNITS_MS = {
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": _DAY_MS, "week": 7 * _DAY_MS,
    "month": 31 * _DAY_MS, "quarter": 92 * _DAY_MS, "year": 366 * _DAY_MS,
}  # fmt: skip
"""Maximum length of each unit."""

_FARTHEST_MS = 20 * _UNITS_MS["year"]
"""Distance from now within which bucket ids do not wrap, at 1970 or 2106."""
_NEAR_LITERALS_MS = range(694_224_000_000, 3_597_523_200_000)
"""Dates from 1992 to 2083, which are no nearer to 1970 and 2106 than that."""


def is_constant(expression: Any, scope: Scope) -> bool:
    """Whether this certainly has one value for the whole command, which the server evaluates before it reads."""
    waiting = [expression]
    for _ in range(MOST_PARTS):
        if not waiting:
            return True
        part = waiting.pop()
        match part:
            case str():
                if part.startswith("$") and not _is_known(part, scope):
                    return False
            case {"$literal": value}:
                # Values inside an array or object are not counted, so none is accepted.
                if isinstance(value, dict | list):
                    return False
            case dict():
                if any(key.startswith("$") and key not in _FOLDED for key in part):
                    return False
                waiting += part.values()
            case list():
                waiting += part
    return False


def _is_known(variable: str, scope: Scope) -> bool:
    return variable == "$$NOW" or _name(variable) in scope.variables


def _name(text: str) -> str:
    """``$$name.path`` → ``name``; ``""`` for anything else."""
    return text[2:].split(".", maxsplit=1)[0] if text.startswith("$$") else ""


def literal(expression: Any, scope: Scope) -> tuple[Any] | None:
    """The value, in a 1-tuple, of a literal in the expression or in ``let``; ``None`` for documents and arrays."""
    if isinstance(expression, str) and expression.startswith("$"):
        named = expression[2:] if expression.startswith("$$") else ""
        if named not in scope.variables:
            return None
        expression = scope.variables[named]
        if isinstance(expression, str) and expression.startswith("$"):
            return None
    if isinstance(expression, dict) and expression.keys() == {"$literal"}:
        expression = expression["$literal"]
    return None if isinstance(expression, dict | list) else (expression,)


def is_near_now(expression: Any, scope: Scope) -> bool:
    """Whether this is a date within 20 years of the time at which the command runs, or of 1992 to 2083."""
    if isinstance(expression, str) and expression != "$$NOW" and expression.startswith("$$"):
        expression = scope.variables.get(expression[2:])
    away_ms = _away_from_now_ms(expression)
    return away_ms is not None and away_ms <= _FARTHEST_MS


def _away_from_now_ms(expression: Any) -> float | None:
    """The maximum distance of a date from now or a literal; ``None`` if it is not calculated from one."""
    match expression:
        case "$$NOW":
            return 0
        case datetime() | DatetimeMS():
            return 0 if millis(expression) in _NEAR_LITERALS_MS else None
        case {"$dateAdd": dict() as moved} | {"$dateSubtract": dict() as moved} if len(expression) == 1:
            return _sum(_away_from_now_ms(moved.get("startDate")), _period_ms(moved.get("unit"), moved.get("amount")))
        case {"$dateTrunc": dict() as cut} if len(expression) == 1:
            return _sum(_away_from_now_ms(cut.get("date")), _period_ms(cut.get("unit"), cut.get("binSize", 1)))
        case {"$subtract": [minuend, subtrahend]} if len(expression) == 1:
            return _sum(_away_from_now_ms(minuend), _number(subtrahend))
        case {"$add": [first, second]} if len(expression) == 1:
            if _number(first) is not None:
                first, second = second, first
            return _sum(_away_from_now_ms(first), _number(second))
        case _:
            return None


def _period_ms(unit: Any, amount: Any) -> float | None:
    length_ms = _UNITS_MS.get(unit) if isinstance(unit, str) else None
    number = _number(amount)
    return None if length_ms is None or number is None else length_ms * number


def _number(expression: Any) -> float | None:
    """The absolute value of a number, or of a product of numbers."""
    match expression:
        case bool() | Decimal128():
            return None
        case int() | float():
            return abs(float(expression))
        case {"$multiply": [*factors]} if len(expression) == 1 and len(factors) <= MOST_PARTS:
            product = 1.0
            for factor in factors:
                number = None if isinstance(factor, Mapping) else _number(factor)
                if number is None:
                    return None
                product *= number
            return product
        case _:
            return None


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def is_time_of_ids(expression: Any, scope: Scope) -> bool:
    """Whether this is a date whose bounds on bucket ids do not wrap (H2): near now, or a literal.

    ``hazards`` checks the dates in the predicate itself; those of variables are checked here.
    """
    value = literal(expression, scope)
    if value is None:
        return is_near_now(expression, scope)
    time_ms = millis(value[0])
    if time_ms is None:
        return False
    return not isinstance(expression, str) or scope.span_seconds * 1000 <= time_ms < _LAST_ID_MS


_LAST_ID_MS = (2**32 - 1) * 1000
