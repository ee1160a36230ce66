"""The table of settings: names that are the same everywhere, and bounds."""

from __future__ import annotations

from dataclasses import fields

import pytest
from msgspec import inspect as types

from proxy.settings.table import ROWS, SettingRow, Settings


def test_table_has_every_setting_once() -> None:
    assert sorted(ROWS) == sorted(setting.name for setting in fields(Settings))


def test_names_of_flags_and_variables() -> None:
    assert ROWS["max_connections"].flag == "--max-connections"
    assert ROWS["max_connections"].variable == "TSPROXY_MAX_CONNECTIONS"


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.unit], ids=lambda row: row.name)
def test_every_number_has_an_upper_bound(row: SettingRow) -> None:
    kinds = types.type_info(row.type)
    (number,) = (
        each
        for each in (kinds.types if isinstance(kinds, types.UnionType) else (kinds,))
        if isinstance(each, types.IntType | types.FloatType)
    )
    assert number.le is not None
    assert row.default is None or row.default == "auto" or row.default <= number.le <= 2**63 - 1
