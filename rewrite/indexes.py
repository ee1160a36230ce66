"""Maps index keys from the user's form to that of buckets (I1, I2, I11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bson import Decimal128, Int64

from catalog.errors import CommandError
from catalog.namespaces import TimeseriesOptions
from rewrite.plan import Document
from rewrite.stages.meta_fields import meta_path

MIN_PREFIX = "control.min."
MAX_PREFIX = "control.max."
DATA_PREFIX = "data."

GEO = "2dsphere"
BUCKET_GEO = "2dsphere_bucket"

IndexElement = tuple[str, Any]


def bucket_key(key: Mapping[str, Any], options: TimeseriesOptions) -> Document:
    """The key on buckets for a user's key (I1), element by element in the same order.

    Raises ``CommandError`` 67 for what no bucket index can serve, 72 for text (I2).
    """
    if not key:
        raise CommandError(67, "BadValue: Empty object is not a valid index spec")
    return dict(element for path, kind in key.items() for element in _bucket_elements(path, kind, key, options))


def _bucket_elements(
    path: str, kind: Any, key: Mapping[str, Any], options: TimeseriesOptions
) -> Iterator[IndexElement]:
    if kind == "text":
        raise CommandError(72, "Text indexes are not supported on time-series collections")
    stored = meta_path(path, options)
    if stored is not None:
        yield stored, kind
    elif is_direction(kind):
        yield from _bounds(path, kind)
    elif path != options.time_field and kind == GEO:
        yield DATA_PREFIX + path, BUCKET_GEO
    else:
        raise _refusal(path, kind, key, options)


def _bounds(path: str, direction: Any) -> Iterator[IndexElement]:
    """Both summaries, in the order that the direction of the key requires."""
    prefixes = (MAX_PREFIX, MIN_PREFIX) if _number(direction) < 0 else (MIN_PREFIX, MAX_PREFIX)
    for prefix in prefixes:
        yield prefix + path, direction


def is_direction(kind: Any) -> bool:
    """Whether an index value is a BSON number; booleans are not."""
    return isinstance(kind, (int, float, Decimal128)) and not isinstance(kind, bool)


def _number(direction: Any) -> float:
    return float(direction.to_decimal()) if isinstance(direction, Decimal128) else float(direction)


def _refusal(path: str, kind: Any, key: Mapping[str, Any], options: TimeseriesOptions) -> CommandError:
    start = f"BadValue: Invalid index spec for time-series collection: {_shown(key)}. "
    if path == options.time_field:
        reason = "Indexes on the time field must be ascending or descending (numbers only): "
    else:
        reason = "Indexes on measurement fields must be ascending or descending (numbers only), or '2dsphere': "
    return CommandError(67, f"{start}{reason}{path}: {_shown(kind)}")


def _shown(value: Any) -> str:
    """A value as the server prints it in a message, approximately."""
    match value:
        case Mapping():
            return "{ " + ", ".join(f"{name}: {_shown(item)}" for name, item in value.items()) + " }"
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case Int64() | int():
            return str(int(value))
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def bucket_hint(hint: Any, options: TimeseriesOptions) -> Any:
    """A hint for the bucket collection: names and ``$natural`` stay, keys are mapped (I11).

    A key without a bucket form stays, too: the server then reports that no index corresponds to it.
    """
    if not isinstance(hint, Mapping) or not hint or "$natural" in hint:
        return hint
    try:
        return bucket_key(hint, options)
    except CommandError:
        return dict(hint)
