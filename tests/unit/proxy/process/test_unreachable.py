"""The message at startup names what, where and why."""

from __future__ import annotations

import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.process.unreachable import account_of, unreachable


def test_backend_and_reason_without_the_description_of_the_topology() -> None:
    told = "h:1: [Errno 111] Connect call failed ('h', 1) (configured timeouts: a: 1ms), Timeout: 0.2s, Topology …"
    error = unreachable("mongodb://u:secret@h:1/", BackendUnavailable(told, code=133))
    assert isinstance(error, BackendUnavailable)
    assert error.message == "cannot connect to the backend mongodb://u:***@h:1/: h:1: Connection refused"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            'No replica set members available for replica set name "rs0", Timeout: 5s, Topology …',
            'replica set name "rs0"; check replicaSet: `tsproxy doctor` says what the server is',
        ),
        (
            "SSL handshake failed: h:1:  (configured timeouts: a: 1ms), Timeout: 5s",
            "SSL handshake failed: h:1: the server closed the connection, it may have no TLS",
        ),
        (
            "SSL handshake failed: h:1: ,SSL handshake failed: h:2: ",
            "h:2: the server closed the connection, it may have no TLS",
        ),
        ("SSL handshake failed: h:1: [SSL] bad certificate", "SSL handshake failed: h:1: [SSL] bad certificate"),
        ("No primary available for writes", "/: No primary available for writes"),
    ],
)
def test_what_the_driver_leaves_out_is_added(told: str, said: str) -> None:
    assert unreachable("mongodb://h:1/", BackendUnavailable(told)).message.endswith(said)


@pytest.mark.parametrize(
    ("uri", "account"),
    [
        ("mongodb://u:p@h/", ("u", "admin")),
        ("mongodb://u:p@h/app", ("u", "app")),
        ("mongodb://u:p@h/app?authSource=x", ("u", "x")),
        ("mongodb+srv://a%40b:p@h.example.com/", ("a@b", "admin")),
    ],
)
def test_account_of_a_connection_string(uri: str, account: tuple[str, str]) -> None:
    assert account_of(uri) == account


def test_refused_login_names_user_host_and_database() -> None:
    error = unreachable("mongodb://bob:secret@h:1/app", CommandError(18, "Authentication failed."))
    for part in ("h:1", "'bob'", "authSource app", "Authentication failed;"):
        assert part in error.message
    assert "secret" not in error.message
