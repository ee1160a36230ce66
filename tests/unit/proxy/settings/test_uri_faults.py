"""What is wrong with a connection string, in words for those who write one."""

from __future__ import annotations

import pytest
from pymongo.common import URI_OPTIONS_VALIDATOR_MAP

from proxy.settings.uri_faults import OPTIONS, uri_fault

ENCODE = "percent-encode user and password: @ is %40"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://u:s@cret@h/", ENCODE),
        ("mongodb://u:s:cret@h/", ENCODE),
        ("mongodb://u:s/cret@h/", ENCODE),
        ("mongodb://u:secret@h:x/", "Port contains non-digit characters; percent-encode"),
        ("mongodb://h/?replicaSett=rs0", "unknown option replicaSett; did you mean replicaSet?"),
        ("mongodb://h/?tls=true&tlscafil=x", "unknown option tlscafil; did you mean tlsCAFile?"),
        ("mongodb://h/?noSuch=1", "unknown option noSuch"),
        ("mongodb://h/?tls=maybe", "The value of tls must be 'true' or 'false'"),
        ("mongodb://h/?authMechanism=PLAIN", "authMechanism=PLAIN is not supported"),
        ("http://h/", "Invalid URI scheme"),
    ],
)
def test_the_reason_says_what_to_write(uri: str, said: str) -> None:
    fault = uri_fault(uri)
    assert fault.startswith(said)
    assert [word for word in ("cret", "urllib", "docstring") if word in fault] == []


@pytest.mark.parametrize("uri", ["mongodb://h/?replicaset=rs0", "mongodb://u:s%40cret@h/", "mongodb+srv://h/?a=1"])
def test_valid_ones_have_no_fault(uri: str) -> None:
    assert uri_fault(uri) == ""


def test_suggested_options_are_known_to_the_driver() -> None:
    assert [name for name in OPTIONS if name.lower() not in URI_OPTIONS_VALIDATOR_MAP] == []
