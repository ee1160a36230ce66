"""The TLS context that a connection string asks for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from pymongo import AsyncMongoClient

from proxy.backend.backend_tls import context_of, tls_of
from tests.support.certificates import Certificates


async def test_options_of_tls_and_no_others_count(tmp_path: Path) -> None:
    made = Certificates.make(tmp_path)
    assert tls_of({"replicaSet": "rs0"}) is None
    context = tls_of({"tls": "true", "tlsCAFile": str(made.authority), "replicaSet": "rs0"})
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_files_that_cannot_be_loaded() -> None:
    with pytest.raises(OSError, match="missing"):
        tls_of({"tls": "true", "tlsCAFile": "/missing"})


async def test_context_of_a_client() -> None:
    assert context_of(AsyncMongoClient("localhost", connect=False)) is None
