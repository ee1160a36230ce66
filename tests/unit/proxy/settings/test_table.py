"""The table of settings: addresses, and names that are the same everywhere."""

from __future__ import annotations

from dataclasses import fields

import pytest

from proxy.settings.table import ROWS, Address, Settings


@pytest.mark.parametrize("text", ["127.0.0.1:27018", "localhost:0", "[::]:1", "[fe80::1]:65535"])
def test_address_is_written_as_it_was_read(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", ":1", "h", "h:", "h:x", "h:65536", "::1:5", "h:-1", "h:１"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Address.parse(text)


def test_table_has_every_setting_once() -> None:
    assert sorted(ROWS) == sorted(setting.name for setting in fields(Settings))


def test_names_of_flags_and_variables() -> None:
    assert ROWS["max_connections"].flag == "--max-connections"
    assert ROWS["max_connections"].variable == "TSPROXY_MAX_CONNECTIONS"
