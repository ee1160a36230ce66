"""What two replies to one read must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from bson import Decimal128
from bson.datetime_ms import DatetimeMS

from tests.support.twins import exact


def canonical_answer(name: str, reply: Mapping[str, Any], *, ordered: bool, folds_case: bool, chooses: bool) -> Any:
    """Rows without what the server leaves open: their order without a sort.

    If the command ``chooses`` among equal values, it is also open which of them is kept.
    """
    if reply.get("ok") != 1:
        return ("error", reply["code"])
    if name == "count":
        return ("count", reply["n"])
    if name == "distinct":
        return ("values", sorted({repr(canonical(value, folds_case)) for value in reply["values"]}))
    rows = [
        repr(canonical(row, folds_case, top=True) if chooses else sorted(exact(row).items()))
        for row in reply["cursor"]["firstBatch"]
    ]
    return ("rows", rows if ordered else sorted(rows))


def canonical(value: Any, folds_case: bool = False, *, top: bool = False) -> Any:
    """A form in which values that compare equal on the server are equal."""
    match value:
        case bool():
            return value
        case int() | float() | Decimal128():
            return _number(value)
        case str():
            return value.casefold() if folds_case else value
        case Mapping():
            fields = [(key, canonical(element, folds_case)) for key, element in value.items()]
            # Columns come in stored order, so the order of top-level fields is open (Q2).
            return ("object", sorted(fields) if top else fields)
        case list():
            return ("array", [canonical(element, folds_case) for element in value])
        case DatetimeMS():
            return ("date", int(value))
        case _:
            return value


def _number(value: float | Decimal128) -> Any:
    exact = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)
    if exact.is_nan():
        return ("number", "NaN")
    return ("number", str(exact.normalize()) if exact else "0")
