"""Reads the tables of limits entry by entry, so that a mistake is named without the rest of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import inspect as types

from proxy.settings.table import ROWS, SettingRow


class WrongEntry(ValueError):
    """An entry is not valid: ``name`` has the names of the setting and the entry, ``reason`` follows it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}")
        self.name = name
        self.reason = reason


def entries_of(row: SettingRow, value: object) -> Mapping[str, Any]:
    """The entries of a table, which is JSON if it is text.

    Raises ``msgspec.DecodeError`` for other text, ``msgspec.ValidationError`` for what is no table, and ``WrongEntry``.
    """
    table = msgspec.json.decode(value) if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise msgspec.ValidationError(row.name)
    is_toml = not isinstance(value, str)
    return {name: _entry(row, name, entry, is_toml=is_toml) for name, entry in table.items()}


def numbers_of(row: SettingRow) -> str:
    """The fields of an entry of this table, each with the numbers that it can have, in words."""
    kind = get_args(row.type)[1]
    by_numbers: dict[str, list[str]] = {}
    for name in kind.__struct_fields__:
        by_numbers.setdefault(_number(kind, name), []).append(name)
    return "; ".join(f"{', '.join(names)}: {numbers}" for numbers, names in by_numbers.items())


def _entry(row: SettingRow, name: str, entry: object, *, is_toml: bool) -> Any:
    kind = get_args(row.type)[1]
    shown = f"{row.name} {json.dumps(name, ensure_ascii=False)}"
    if not isinstance(entry, Mapping):
        raise WrongEntry(shown, f"is not a table of limits{_misplaced(name) if is_toml else ''}")
    for field, value in entry.items():
        if field not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__)
            raise WrongEntry(shown, f"has no field {field} (only {known}){_misplaced(field) if is_toml else ''}")
        try:
            msgspec.convert({field: value}, kind)
        except msgspec.ValidationError:
            raise WrongEntry(shown, f"is not valid: {field} = {value!r}: expected {_number(kind, field)}") from None
    return msgspec.convert(entry, kind)


def _misplaced(name: str) -> str:
    """TOML takes everything after the header of a table for a part of it."""
    return "; settings must come before the first table" if name in ROWS else ""


def _number(kind: type[msgspec.Struct], name: str) -> str:
    """The numbers that this field can have, in words."""
    (field,) = (each for each in msgspec.structs.fields(kind) if each.name == name)
    kinds = types.type_info(field.type)
    assert isinstance(kinds, types.UnionType)
    (number,) = (each for each in kinds.types if isinstance(each, types.IntType))
    return f"a whole number from {number.ge} to {number.le}"
