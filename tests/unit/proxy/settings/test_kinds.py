"""Addresses as settings have them."""

from __future__ import annotations

import pytest

from proxy.settings.kinds import Address


@pytest.mark.parametrize("text", ["127.0.0.1:27018", "localhost:0", "[::]:1", "[fe80::1]:65535"])
def test_address_is_written_as_it_was_read(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", ":1", "h", "h:", "h:x", "h:65536", "::1:5", "h:-1", "h:１"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Address.parse(text)
