"""What a connection string says."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from catalog.errors import BackendUnavailable
from proxy.process.doctor.target import backend_of
from proxy.settings.config import ConfigurationError
from tests.support.certificates import Certificates


async def test_servers_account_and_options() -> None:
    uri = "mongodb://u:secret@a,b:3/app?replicaSet=rs0"
    target, authenticate, tls = await backend_of(uri, 1.0)
    assert authenticate is not None
    assert tls is None
    assert target.uri == "mongodb://u:***@a,b:3/app?replicaSet=rs0"
    assert target.seeds == (("a", 27017), ("b", 3))
    assert (target.set_name, target.is_direct) == ("rs0", False)
    assert (target.user, target.source) == ("u", "app")
    assert "secret" not in repr(target)


async def test_no_account_and_a_direct_connection() -> None:
    target, authenticate, _ = await backend_of("mongodb://a/?directConnection=true", 1.0)
    assert authenticate is None
    assert target.user == ""
    assert target.is_direct


async def test_tls_is_that_of_the_options(tmp_path: Path) -> None:
    made = Certificates.make(tmp_path)
    target, _, tls = await backend_of(f"mongodb://a/?tls=true&tlsCAFile={made.authority}", 1.0)
    assert tls is not None
    assert (target.has_tls, target.verifies) == (True, True)
    target, _, tls = await backend_of("mongodb://a/?tls=true&tlsAllowInvalidCertificates=true", 1.0)
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_NONE
    assert not target.verifies


@pytest.mark.parametrize(
    "uri", ["mongodb://", "mongodb://u:secret@a/?authMechanism=GSSAPI", "mongodb://a/?tls=true&tlsCAFile=/missing"]
)
async def test_strings_that_are_not_valid_are_wrong_settings(uri: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        await backend_of(uri, 1.0)
    assert "secret" not in str(error.value)


async def test_dns_records_that_are_not_found_may_be_found_later() -> None:
    with pytest.raises(BackendUnavailable, match="SRV"):
        await backend_of("mongodb+srv://u:secret@nowhere.example.invalid/", 0.5)
