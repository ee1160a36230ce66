"""Addresses of peers, and names of hosts; addresses of peers are also in tests/unit/proxy/admin/test_rights.py."""

from __future__ import annotations

import pytest

from proxy.observe.loopback import is_loopback, names_this_machine


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9216", True),
        ("127.0.0.1", True),
        ("[::1]:9216", True),
        ("localhost:9216", True),
        ("LocalHost", True),
        ("", False),
        (":9216", False),
        ("[]:9216", False),
        ("10.0.0.1:9216", False),
        ("evil.example:9216", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
    ],
)
def test_names_of_this_machine(host: str, expected: bool) -> None:
    assert names_this_machine(host) is expected


def test_a_peer_of_which_nothing_is_known_is_somewhere_else() -> None:
    assert not is_loopback("unknown")
