"""What the driver raises becomes the reply that a client can act on."""

from __future__ import annotations

import dns.resolver
import pytest
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from catalog.errors import BackendUnavailable
from proxy.backend.driver_errors import command_error


def test_what_the_backend_said_stays_as_it_was() -> None:
    said = {"ok": 0, "code": 13, "errmsg": "no such thing", "errorLabels": ["TransientTransactionError"]}
    error = command_error(OperationFailure("no such thing, full error: …", 26, said))
    assert (error.code, error.message, error.labels) == (26, "no such thing", ("TransientTransactionError",))
    refused = command_error(OperationFailure("not authorized to execute { a: 1 }", 13))
    assert refused.code == 13
    assert "a: 1" not in refused.message
    assert not isinstance(error, BackendUnavailable)


@pytest.mark.parametrize(
    ("raised", "code"), [(ServerSelectionTimeoutError("nobody"), 133), (AutoReconnect("reset"), 6)], ids=str
)
def test_a_backend_that_is_away_is_told_so_that_drivers_retry(raised: PyMongoError, code: int) -> None:
    error = command_error(raised)
    assert isinstance(error, BackendUnavailable)
    assert error.code == code
    assert str(raised) in error.message


def test_a_name_that_cannot_be_resolved_is_told_as_such() -> None:
    raised = ConfigurationError("The DNS query name does not exist")
    raised.__cause__ = dns.resolver.NXDOMAIN()
    assert command_error(raised).message == "cannot resolve the backend's SRV record: The DNS query name does not exist"


def test_anything_else_is_an_ordinary_error() -> None:
    error = command_error(ConfigurationError("odd"))
    assert not isinstance(error, BackendUnavailable)
    assert "odd" in error.message


def test_what_the_driver_says_of_data_is_not_passed_on() -> None:
    error = command_error(ProtocolError("not a reply: {a: 1}"), holds_data=True)
    assert error.message == "request to the backend failed: ProtocolError"
