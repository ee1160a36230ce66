"""What the catalog's update statements mean: the few operators that they use, and not one more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bson.datetime_ms import DatetimeMS

MISSING = object()
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})


def same(left: Any, right: Any) -> bool:
    """Equality that tells types apart as the guards have to."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)


def at(document: Any, path: str) -> Any:
    """The value at a dotted path."""
    for name in path.split("."):
        if not isinstance(document, Mapping) or name not in document:
            return MISSING
        document = document[name]
    return document


def matches(document: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Whether a bucket document fulfils a guard."""
    for path, condition in query.items():
        if path == "$expr":
            if evaluate(condition, document) is not True:
                return False
        elif not _holds(at(document, path), condition):
            return False
    return True


def _holds(value: Any, condition: Any) -> bool:
    if not (isinstance(condition, Mapping) and condition and next(iter(condition)).startswith("$")):
        return same(value, condition)
    for operator, operand in condition.items():
        if operator == "$exists":
            held = (value is not MISSING) is operand
        elif operator == "$ne":
            held = not same(value, operand)
        elif operator == "$eq":
            held = same(value, operand)
        elif operator == "$not":
            assert operand == {"$type": 4}
            held = not isinstance(value, list)
        else:
            raise AssertionError(f"unknown operator {operator}")
        if not held:
            return False
    return True


def evaluate(expression: Any, document: Mapping[str, Any], variables: Mapping[str, Any] = NO_VARIABLES) -> Any:
    """An aggregation expression."""
    if isinstance(expression, str) and expression.startswith("$$"):
        return document if expression == "$$ROOT" else variables[expression[2:]]
    if isinstance(expression, str) and expression.startswith("$"):
        return at(document, expression[1:])
    if isinstance(expression, list):
        return [evaluate(each, document, variables) for each in expression]
    if not isinstance(expression, Mapping):
        return expression
    if len(expression) == 1 and (operator := next(iter(expression))).startswith("$"):
        return _operator(operator, expression[operator], document, variables)
    values = {name: evaluate(each, document, variables) for name, each in expression.items()}
    return {name: value for name, value in values.items() if value is not MISSING}


def _operator(operator: str, operand: Any, document: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
    def value_of(expression: Any) -> Any:
        return evaluate(expression, document, variables)

    match operator:
        case "$literal":
            return operand
        case "$let":
            return evaluate(operand["in"], document, {**variables, **value_of(operand["vars"])})
        case "$eq" | "$ne":
            left, right = value_of(operand)
            return same(left, right) is (operator == "$eq")
        case "$gte":
            left, right = value_of(operand)
            return left >= right
        case "$and":
            return all(value_of(each) is True for each in operand)
        case "$indexOfArray":
            array, value = value_of(operand)
            return array.index(value) if value in array else -1
        case "$arrayElemAt":
            array, position = value_of(operand)
            return array[position]
        case "$type":
            value = value_of(operand)
            return "missing" if value is MISSING else type(value).__name__
        case "$getField":
            source, name = value_of(operand["input"]), value_of(operand["field"])
            return source.get(name, MISSING) if isinstance(source, Mapping) else MISSING
        case "$mergeObjects":
            merged: dict[str, Any] = {}
            for each in value_of(operand):
                merged.update({} if each is MISSING else each)
            return merged
        case "$arrayToObject":
            (pairs,) = value_of(operand)
            return {pair["k"]: pair["v"] for pair in pairs}
    raise AssertionError(f"unknown operator {operator}")


def updated(document: dict[str, Any], update: Any) -> dict[str, Any]:
    """The document after ``$set`` on dotted paths, or after a pipeline of one ``$set``."""
    document = deep_copy(document)
    if isinstance(update, list):
        (stage,) = update
        values = {path: evaluate(expression, document) for path, expression in stage["$set"].items()}
    else:
        assert list(update) == ["$set"]
        values = update["$set"]
    for path, value in values.items():
        *parents, last = path.split(".")
        inner = document
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return document


def deep_copy(value: Any) -> Any:
    """A copy of nested objects; leaves are immutable."""
    if isinstance(value, Mapping):
        return {name: deep_copy(each) for name, each in value.items()}
    if isinstance(value, list):
        return [deep_copy(each) for each in value]
    return value


def milliseconds(value: Any) -> int:
    """The milliseconds of a decoded date."""
    assert isinstance(value, DatetimeMS)
    return int(value)
