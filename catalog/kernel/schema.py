"""Decides by their types at every path which measurements may share a bucket (W47).

A *shape* describes the values at a path: the canonical class of a scalar, a ``dict`` of shapes by name for an object, a
``list`` of shapes by index for an array.
"""

from __future__ import annotations

from typing import TypeAlias, Union

from catalog.bson import raw
from catalog.bson.order import CANONICAL

ValueShape: TypeAlias = Union[int, "dict[bytes, ValueShape]", "list[ValueShape]"]


def shape_of(value: bytes) -> ValueShape:
    """The shape of one element value."""
    kind = value[0]
    if kind == raw.OBJECT:
        return {name: shape_of(inner) for name, inner in raw.fields_of(value, 1).items()}
    if kind == raw.ARRAY:
        return [shape_of(inner) for _, inner in raw.iter_elements(value, 1)]
    return CANONICAL[kind]


def compatible(shape: ValueShape, value: bytes) -> bool:
    """Whether ``value`` may share a bucket with values of this shape."""
    kind = value[0]
    if isinstance(shape, int):
        return kind not in raw.NESTED_TYPES and CANONICAL[kind] == shape
    if isinstance(shape, dict):
        if kind != raw.OBJECT:
            return False
        return all(
            known is None or compatible(known, inner)
            for known, inner in ((shape.get(name), inner) for name, inner in raw.fields_of(value, 1).items())
        )
    if kind != raw.ARRAY:
        return False
    return all(compatible(known, inner) for known, (_, inner) in zip(shape, raw.iter_elements(value, 1), strict=False))


def nodes_of(shape: ValueShape) -> int:
    """The number of values that a shape describes."""
    if isinstance(shape, int):
        return 1
    return 1 + sum(map(nodes_of, shape.values() if isinstance(shape, dict) else shape))


def grow(shape: ValueShape, value: bytes) -> int:
    """Add the new paths of a compatible ``value`` to ``shape``; returns their number."""
    added = 0
    if isinstance(shape, dict):
        for name, inner in raw.fields_of(value, 1).items():
            known = shape.get(name)
            if known is None:
                shape[name] = shape_of(inner)
                added += nodes_of(shape[name])
            else:
                added += grow(known, inner)
    elif isinstance(shape, list):
        for index, (_, inner) in enumerate(raw.iter_elements(value, 1)):
            if index < len(shape):
                added += grow(shape[index], inner)
            else:
                shape.append(shape_of(inner))
                added += nodes_of(shape[index])
    return added


def merge(left: ValueShape, right: ValueShape) -> ValueShape | None:
    """The shape with the paths of both; ``None`` if they contradict each other."""
    if isinstance(left, dict) and isinstance(right, dict):
        fields = dict(left)
        for name, shape in right.items():
            both = merge(fields[name], shape) if name in fields else shape
            if both is None:
                return None
            fields[name] = both
        return fields
    if isinstance(left, list) and isinstance(right, list):
        longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
        items: list[ValueShape] = list(longer)
        for index, shape in enumerate(shorter):
            both = merge(items[index], shape)
            if both is None:
                return None
            items[index] = both
        return items
    return left if left == right and isinstance(left, int) else None
