"""With which credentials service connections log in; the logins themselves are tested in ``tests/security``."""

from __future__ import annotations

import pytest

from proxy.backend.service_auth import authenticator


@pytest.mark.parametrize("uri", ["mongodb://h/", "mongodb://h/?authMechanism=DEFAULT", "mongodb://h/db?w=1"])
def test_without_credentials_nobody_logs_in(uri: str) -> None:
    assert authenticator(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://u:p@h/",
        "mongodb://u:p@h/?authMechanism=SCRAM-SHA-1",
        "mongodb://u:p@h/?authMechanism=SCRAM-SHA-256&authSource=x",
        "mongodb://h/?authMechanism=MONGODB-X509&tls=true",
    ],
)
def test_credentials_of_the_connection_string_are_used(uri: str) -> None:
    assert authenticator(uri) is not None


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "MONGODB-AWS"])
def test_other_mechanisms_are_refused_by_name(mechanism: str) -> None:
    with pytest.raises(ValueError, match=mechanism):
        authenticator(f"mongodb://u:p@h/?authMechanism={mechanism}&authSource=$external")
